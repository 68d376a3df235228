/* Opens the files that Python writes into the gateway's folder. */
#ifndef PENSTOCK_TABLE_FILES_H
#define PENSTOCK_TABLE_FILES_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared_state.h"

/* Maps a file of the folder, or of one generation of the fleet if that is not negative. NULL: missing or too short. */
static void *map_file(const char *folder, const char *name, int64_t generation, bool writable, size_t *size) {
  char path[640];
  struct stat found;
  if (generation < 0) snprintf(path, sizeof path, "%s/%s", folder, name);
  else snprintf(path, sizeof path, "%s/%s-%lld.table", folder, name, (long long)generation);
  int file = open(path, writable ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  void *at = MAP_FAILED;
  if (!fstat(file, &found) && found.st_size > 0 && (!*size || (size_t)found.st_size >= *size)) {
    *size = (size_t)found.st_size;
    at = mmap(NULL, *size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
  }
  close(file);
  return at == MAP_FAILED ? NULL : at;
}

static void close_table(table *t) {
  if (t->header) munmap((void *)(uintptr_t)t->header, t->sizes[0]);
  if (t->reports) munmap(t->reports, t->sizes[1]);
  if (t->counts) munmap(t->counts, t->sizes[2]);
  free(t->applied);
  free(t->id);
  free(t);
}

/* Whether all parts of a table lie within it. */
static bool is_whole(const penstock_module_header *h, size_t size) {
  const int64_t most = INT64_C(1) << 24;
  if (h->magic != PENSTOCK_MODULE_MAGIC || h->total_bytes > (int64_t)size || h->endpoints < 1 || h->endpoints > most) return false;
  if (h->names < 1 || h->names > most || h->classes < 0 || h->classes > most || h->workers < 1 || h->workers > MAX_WORKERS) return false;
  if (h->tenants < 2 || h->tenants > most || h->prefix_rows < 1 || h->prefix_rows > most || h->sample_every < 0) return false;
  if (h->prefix_words < 1 || h->prefix_words > most || h->criticals < -1 || h->criticals > most) return false;
  int64_t sampling = h->sample_every ? h->workers : 0, criticals = h->criticals > 0 ? h->criticals : 0;
  const struct { int64_t at, count; size_t size; } parts[] = {
      {h->at_endpoints, h->endpoints, sizeof(penstock_endpoint)}, {h->at_parameters, 1, sizeof(penstock_parameters)},
      {h->at_suspects, h->endpoints, sizeof(penstock_suspect)}, {h->at_blocks, h->prefix_rows, sizeof(penstock_prefix_block)},
      {h->at_holders, h->prefix_rows, (size_t)h->prefix_words * 8}, {h->at_tenants, h->tenants, sizeof(penstock_tenant)},
      {h->at_places, h->endpoints, sizeof(penstock_place)}, {h->at_names, h->names, sizeof(penstock_name)},
      {h->at_classes, h->classes, sizeof(penstock_route_class)}, {h->at_critical, criticals, sizeof(penstock_critical)},
      {h->at_samples, h->workers, sizeof(penstock_sample)}, {h->at_sampled_requests, sampling, sizeof(penstock_request)},
      {h->at_sampled_parameters, sampling, sizeof(penstock_parameters)},
      {h->at_sampled_endpoints, sampling * h->endpoints, sizeof(penstock_endpoint)}, {h->at_sampled_hits, sampling * h->endpoints, 8}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].at < (int64_t)sizeof *h || parts[i].at % 8 || parts[i].at > h->total_bytes ||
        parts[i].count * (int64_t)parts[i].size > h->total_bytes - parts[i].at) return false;
  const penstock_place *places = (const penstock_place *)((const char *)h + h->at_places);
  for (int64_t i = 0; i < h->endpoints; i++)
    if (places[i].length < 1 || places[i].length > (int64_t)sizeof places->text) return false;
  return 64 * h->prefix_words >= h->endpoints;
}

static table *open_table(const char *folder, int workers, int64_t generation) {
  table *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->sizes[0] = sizeof *t->header;
  char *base = map_file(folder, "module", generation, true, &t->sizes[0]);
  const penstock_module_header *h = t->header = (const penstock_module_header *)base;
  if (!h || !is_whole(h, t->sizes[0])) goto failed;
  t->endpoints = (penstock_endpoint *)(base + h->at_endpoints);
  t->parameters = (penstock_parameters *)(base + h->at_parameters);
  t->suspects = (penstock_suspect *)(base + h->at_suspects);
  t->blocks = (penstock_prefix_block *)(base + h->at_blocks);
  t->holders = (int64_t *)(base + h->at_holders);
  t->tenants = (penstock_tenant *)(base + h->at_tenants);
  t->places = (const penstock_place *)(base + h->at_places);
  t->names = (const penstock_name *)(base + h->at_names);
  t->classes = (const penstock_route_class *)(base + h->at_classes);
  t->critical = (const penstock_critical *)(base + h->at_critical);
  t->samples = (penstock_sample *)(base + h->at_samples);
  t->sampled_requests = (penstock_request *)(base + h->at_sampled_requests);
  t->sampled_parameters = (penstock_parameters *)(base + h->at_sampled_parameters);
  t->sampled_endpoints = (penstock_endpoint *)(base + h->at_sampled_endpoints);
  t->sampled_hits = (int64_t *)(base + h->at_sampled_hits);
  t->sizes[1] = sizeof *t->reports * (size_t)h->endpoints;
  t->sizes[2] = sizeof *t->counts * (size_t)(h->endpoints * h->workers);
  t->reports = map_file(folder, "reports", generation, true, &t->sizes[1]);
  t->counts = map_file(folder, "counts", generation, true, &t->sizes[2]);
  t->applied = calloc((size_t)h->endpoints, sizeof *t->applied);
  t->id = calloc((size_t)h->endpoints, sizeof *t->id);
  if (t->reports && t->counts && t->applied && t->id && h->workers == workers) return t;
failed:
  close_table(t);
  return NULL;
}

#endif
