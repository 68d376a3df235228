/* The module's state: one table for all worker threads, and what each worker owns.
 *
 * Records of endpoints have one writer at a time, and no worker waits for another. A worker posts an event. Whoever
 * gets the flag applies its own event and those that others have posted meanwhile; whoever does not get it goes on.
 * Decisions read the records without the flag: every field is one word, so a decision sees it before or after a change.
 */
#ifndef PENSTOCK_SHARED_STATE_H
#define PENSTOCK_SHARED_STATE_H

#include <stdatomic.h>

#include "../../compiled/penstock.h"
#include "module_table.h"

enum { MAX_WORKERS = 64, MAX_CHOSEN = 3, PLACES = 8192, EVENTS = 1024, MAX_IDS = 16384, RETIRED = 4, KINDS = 64 };
enum { OVERLOAD_SERVE, OVERLOAD_REFUSE, OVERLOAD_HOLD };
enum { ARRIVED, REFUSED, SENT, FIRST, FINISHED, LOST, LEFT, STRUCK, ANSWERED };
enum { FREE = 0, STREAMED = 1, WHOLE = 2 }; /* of a place */

#define FUNCTIONS(X)                                                                                                   \
  X(rank, RANK) X(count_arrival, COUNT_ARRIVAL) X(count_refusal, COUNT_REFUSAL) X(sent_with, SENT_WITH)                \
  X(first_token, FIRST_TOKEN) X(finished, FINISHED) X(lost, LOST) X(record_departure, RECORD_DEPARTURE)                \
  X(begin_report, BEGIN_REPORT) X(reported, REPORTED) X(refresh, REFRESH) X(clear_counts, CLEAR_COUNTS)                \
  X(resume, RESUME) X(retry_after, RETRY_AFTER) X(shorten_request, SHORTEN_REQUEST) X(late_choice, LATE_CHOICE)        \
  X(match_prefix, MATCH_PREFIX) X(add_prefix, ADD_PREFIX) X(tenant_weight, TENANT_WEIGHT)                              \
  X(count_tenant, COUNT_TENANT) X(apply_health, APPLY_HEALTH) X(strike, STRIKE) X(clear_strikes, CLEAR_STRIKES)        \
  X(end_suspicions, END_SUSPICIONS)

/* The files of one generation of the fleet, mapped into memory. */
typedef struct table {
  const penstock_module_header *header;
  penstock_endpoint *endpoints;
  penstock_parameters *parameters;
  penstock_suspect *suspects;
  penstock_prefix_block *blocks;
  int64_t *holders;
  penstock_tenant *tenants;
  const penstock_place *places;
  const penstock_name *names;
  const penstock_route_class *classes;
  const penstock_critical *critical; /* tenants whose requests may weigh more */
  penstock_sample *samples; /* this and the next four: recorded decisions, by worker */
  penstock_request *sampled_requests;
  penstock_parameters *sampled_parameters;
  penstock_endpoint *sampled_endpoints; /* workers x endpoints */
  int64_t *sampled_hits;
  penstock_scraped *reports;
  penstock_counts *counts; /* workers x endpoints */
  uint64_t *applied;       /* sequence of the last report that was applied, by endpoint */
  int32_t *id;             /* of each endpoint: the same in all generations */
  size_t sizes[3];
} table;

/* Something that happened to a request. Endpoints are named by id, since indices change when the fleet is reloaded. */
typedef struct event {
  int kind, place, id;
  int64_t number, choices; /* cached or output tokens; answers that are asked for */
  double now_s;
  penstock_request request;
} event;

/* The last turn after which a request of a class was still held, and its weight. */
typedef struct held_turn {
  uint64_t turn;
  double weight;
} held_turn;

typedef struct worker {
  int index;
  int64_t generation;        /* the arrays below fit the table of this generation */
  _Atomic(table *) using;    /* the table of the decision that is being made */
  penstock_request request;
  penstock_parameters parameters;
  int64_t order[MAX_CHOSEN], *hits, *common, keys[128];
  double *harms;
  penstock_endpoint *copy;
  penstock_counts own[MAX_IDS];
  penstock_picker_state *state;
  int32_t last_place, holding;
  held_turn turns[KINDS]; /* by class */
  _Atomic uint32_t posted, taken; /* ring of events: written by the worker, read by the holder of the flag */
  event ring[EVENTS];
} worker;

#endif
