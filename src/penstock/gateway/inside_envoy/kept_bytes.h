/* Counts the bytes of bodies that Envoy keeps for retries until their answers begin, of each tenant and of all.
 *
 * A body is kept whole. Without a budget, one key could make Envoy use more memory than its pod may have.
 */
#ifndef PENSTOCK_KEPT_BYTES_H
#define PENSTOCK_KEPT_BYTES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEPT_TENANTS = 257 }; /* the first one: without a name */

typedef struct kept_bytes { int64_t bytes; int tenant; } kept_bytes; /* of one body */

static struct {
  int64_t most_of_tenant; /* all together may have twice as many */
  _Atomic int64_t of[KEPT_TENANTS], all;
} kept;

static void forget_bytes(kept_bytes *k) {
  atomic_fetch_sub(&kept.of[k->tenant], k->bytes), atomic_fetch_sub(&kept.all, k->bytes);
  k->bytes = 0;
}

/* Counts a body that now has so many bytes. Returns whether it fits the budget; if not, none of it is counted. */
static bool keep_bytes(kept_bytes *k, int64_t bytes) {
  int64_t more = bytes - k->bytes;
  k->bytes = bytes;
  bool fits = atomic_fetch_add(&kept.of[k->tenant], more) + more <= kept.most_of_tenant;
  if (atomic_fetch_add(&kept.all, more) + more <= 2 * kept.most_of_tenant && fits) return true;
  forget_bytes(k);
  return false;
}

#endif
