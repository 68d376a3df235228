/* An Envoy HTTP filter that chooses the endpoint of each request with the compiled policy of Penstock.
 *
 * The machine code is that of libpenstock, which simulator and pickers call too. Python writes the fleet, scrapes,
 * learns lengths and reloads; none of it is in the way of a request, and without Python the module goes on.
 */
#define _GNU_SOURCE
#include "envoy_abi.h"
#include "answer_scan.h"
#include "body_scan.h"
#include "shared_state.h"
#include "held_requests.h"
#include "kept_bytes.h"
#include "read_headers.h"
#include "table_files.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DECLARE(name, macro) static __typeof__(&penstock_##name) call_##name;
FUNCTIONS(DECLARE)

static struct {
  char folder[512], reserved[512]; /* headers that clients may not set, each ended by a comma */
  int workers;
  long long most_bytes; /* of a body */
  const _Atomic int64_t *generation; /* of the newest fleet, which Python writes */
  _Atomic(table *) current;
  table *retired[RETIRED];
  worker *worker[MAX_WORKERS];
  penstock_picker_state *states;
  penstock_ring_head *rings; /* one per worker; after them the records of all */
  penstock_flight *flights; /* workers x PLACES */
  _Atomic uint8_t *places;
  int32_t ids;
  penstock_place known[MAX_IDS];
  _Atomic bool doubted[MAX_IDS]; /* its last answer was a 400 or 422, so peers are asked too */
  int32_t index_of[MAX_IDS]; /* index of an id in the current table; -1: not in this fleet */
  int64_t refused; /* generation of a table that could not be adopted; 0: none */
  atomic_flag writing;
  _Atomic int waiting; /* events that are posted and not applied */
  _Atomic double kept_s, due_s;
  penstock_report report;
  bool opened;
} module;

enum { SEEN_STREAMED = 1, SEEN_GENERATES = 2, SEEN_FAILED = 4, SEEN_MOVED = 8, SEEN_REFUSED = 16, SEEN_LEFT = 32, SEEN_OWN = 64 };

/* Envoy's response flags: timeout, reset, connect failure, termination, idle stream, protocol error; and of the client:
 * connection closed, HTTP/2 stream reset. */
enum { BROKEN_UPSTREAM = 0x74 | 1 << 16 | 1 << 23, CLIENT_LEFT = 1 << 14 | 1 << 28 };

static const double UNKNOWN_SILENCE_S = 120.0; /* of requests that go on by weight */

enum { GOES_ON, IS_ANSWERED, IS_HELD }; /* what was decided about a request */

/* Everything about one request. */
typedef struct request {
  body_scan scan;
  asked asked;
  kept_bytes kept;
  double promised_ttft_s, promised_tpot_s; /* by which the class is judged: never less than its own limits */
  worker *w;
  int64_t ids[MAX_CHOSEN], cached[MAX_CHOSEN];
  int chosen, place, status, served_by; /* index of the endpoint that answered, in `ids`; -1: none of them */
  bool decided, streamed, shows_tokens, sent, ended, judged, moved; /* shows_tokens: the first piece has the first token */
  penstock_ended seen; /* what Python gets at the end */
  answer_scan answer;
  held_request held;
} request;

static double monotonic_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
double (*penstock_module_clock)(void) = monotonic_s; /* tests set another */

static void warn(const char *text, const char *more) {
  char line[700];
  snprintf(line, sizeof line, "penstock: %s%s", text, more);
  ENVOY(log)(LOG_WARNING, bytes_of(line));
}

/* --- The table ---------------------------------------------------------------------------------------------------- */

static int32_t id_of(const penstock_place *place) {
  for (int32_t id = 0; id < module.ids; id++)
    if (!memcmp(&module.known[id], place, sizeof *place)) return id;
  if (module.ids == MAX_IDS) return -1;
  module.known[module.ids] = *place;
  return module.ids++;
}

static penstock_picker_table shared_view(table *t, penstock_request *asked) {
  int64_t n = t->header->endpoints;
  return (penstock_picker_table){.request = asked, .request_shape = {1}, .endpoints = t->endpoints,
      .endpoints_shape = {n}, .parameters = t->parameters, .parameters_shape = {1}, .flights = module.flights,
      .flights_shape = {(int64_t)module.workers * PLACES}, .reports = &module.report, .reports_shape = {1}};
}

static penstock_suspect_table suspects_of(table *t) {
  int64_t n = t->header->endpoints;
  return (penstock_suspect_table){t->endpoints, {n}, t->suspects, {n}};
}

/* Makes a table the current one, and counts the requests in flight at its endpoints. The caller holds the flag. */
static bool install_table(table *t, double now_s) {
  table *before = atomic_load(&module.current);
  for (int64_t i = 0; i < t->header->endpoints; i++)
    if ((t->id[i] = id_of(&t->places[i])) < 0) return false;
  penstock_request none = {0};
  penstock_picker_table view = shared_view(t, &none);
  for (int32_t id = 0; id < module.ids; id++) module.index_of[id] = -1;
  for (int64_t i = 0; i < t->header->endpoints; i++) {
    module.index_of[t->id[i]] = (int32_t)i;
    call_clear_counts(&view, i);
  }
  for (int64_t place = 0; before && place < (int64_t)module.workers * PLACES; place++) {
    penstock_flight *f = &module.flights[place];
    if (module.places[place] == FREE || f->endpoint < 0) continue;
    int32_t now_at = module.index_of[before->id[f->endpoint]];
    if (now_at < 0) __atomic_store_n(&f->endpoint, -1, __ATOMIC_RELAXED); /* the owner may read it */
    else call_resume(&view, now_at, place);
  }
  for (int64_t i = 0; i < t->header->endpoints; i++) call_refresh(&view, i, now_s);
  for (int64_t i = 0; !before && i < module.workers * t->header->endpoints; i++)
    t->counts[i].in_flight = 0; /* of an Envoy that ended */
  atomic_store(&module.current, t);
  for (int slot = 0; slot < RETIRED && before; slot++) {
    table *old = module.retired[slot];
    for (int w = 0; old && w < module.workers; w++)
      if (atomic_load(&module.worker[w]->using) == old) old = NULL;
    if (old) close_table(old), module.retired[slot] = NULL;
    if (!module.retired[slot]) module.retired[slot] = before, before = NULL;
  }
  return true; /* with all slots taken, the old mapping is kept until the process ends */
}

/* --- Events ------------------------------------------------------------------------------------------------------- */

static void apply_event(table *t, event *e) {
  penstock_picker_table view = shared_view(t, &e->request);
  penstock_suspect_table suspects = suspects_of(t);
  penstock_flight *f = e->place >= 0 ? &module.flights[e->place] : NULL;
  int index = e->id >= 0 ? module.index_of[e->id] : -1;
  bool counted = f && f->endpoint >= 0;
  if (e->kind == ARRIVED) call_count_arrival(&view);
  if (e->kind == REFUSED) call_count_refusal(&view);
  if (e->kind == FIRST && counted && f->first_s == INFINITY) call_first_token(&view, e->place, e->now_s);
  if (e->kind == FINISHED && counted) call_finished(&view, e->place, e->number, e->now_s);
  if (e->kind == LOST && counted) call_lost(&view, e->place, e->now_s);
  if (e->kind == LEFT && counted) call_record_departure(&view, e->place, e->now_s);
  if (e->kind == STRUCK && index >= 0) call_strike(&suspects, index, e->now_s);
  if (e->kind == ANSWERED && index >= 0) call_clear_strikes(&suspects, index);
  if (e->kind == SENT) {
    penstock_tenant_table tenants = {t->tenants, {t->header->tenants}};
    const penstock_request *q = &e->request;
    call_count_tenant(&tenants, q->tenant, q->input_tokens, e->choices * q->expected_output_tokens, q->now_s);
    f->endpoint = -1;
    if (index >= 0) call_sent_with(&view, index, e->place, e->number);
  }
  if (e->kind == FINISHED || e->kind == LOST || e->kind == LEFT)
    atomic_store_explicit(&module.places[e->place], FREE, memory_order_release);
}

/* Applies the events of all workers. The caller holds the flag. */
static void apply_posted(void) {
  table *t = atomic_load(&module.current);
  for (int i = 0; i < module.workers; i++) {
    worker *w = module.worker[i];
    uint32_t posted = atomic_load_explicit(&w->posted, memory_order_acquire), taken = w->taken;
    for (; taken != posted; taken++) {
      apply_event(t, &w->ring[taken % EVENTS]);
      atomic_fetch_sub(&module.waiting, 1);
    }
    atomic_store_explicit(&w->taken, taken, memory_order_release);
  }
}

static bool take_flag(void) { return !atomic_flag_test_and_set_explicit(&module.writing, memory_order_acquire); }
static void release_flag(void) { atomic_flag_clear_explicit(&module.writing, memory_order_release); }

/* Applies posted events unless another worker does. Whoever releases the flag looks again, so no event stays. */
static void apply_events(void) {
  while (atomic_load(&module.waiting) > 0 && take_flag()) {
    apply_posted();
    release_flag();
  }
}

/* Returns whether all events of a worker are applied. Only then it may read what they wrote about its requests. */
static bool is_applied(worker *w) {
  return atomic_load_explicit(&w->taken, memory_order_acquire) == atomic_load_explicit(&w->posted, memory_order_relaxed);
}

static void post(worker *w, const event *e) {
  uint32_t at = atomic_load_explicit(&w->posted, memory_order_relaxed);
  while (at - atomic_load_explicit(&w->taken, memory_order_acquire) >= EVENTS) apply_events(); /* the ring is full */
  w->ring[at % EVENTS] = *e;
  atomic_fetch_add(&module.waiting, 1);
  atomic_store_explicit(&w->posted, at + 1, memory_order_release);
  apply_events();
}

static void post_about(worker *w, int kind, int place, int64_t id, int64_t number, double now_s) {
  event e = {.kind = kind, .place = place, .id = (int)id, .number = number, .now_s = now_s};
  post(w, &e);
}

/* --- Reports, suspicions and reloads, at most every 2 ms ------------------------------------------------------------ */

static void apply_report(table *t, int64_t i, double now_s) {
  penstock_scraped *row = &t->reports[i], copy;
  uint64_t before = __atomic_load_n(&row->sequence, __ATOMIC_ACQUIRE);
  if (before == t->applied[i] || before % 2) return;
  memcpy(&copy, row, sizeof copy);
  atomic_thread_fence(memory_order_acquire);
  if (__atomic_load_n(&row->sequence, __ATOMIC_RELAXED) != before) return;
  t->applied[i] = before;
  penstock_request none = {0};
  penstock_picker_table view = shared_view(t, &none);
  penstock_suspect_table suspects = suspects_of(t);
  call_apply_health(&suspects, i, copy.healthy, now_s);
  if (copy.kv_tokens > 0) t->endpoints[i].kv_tokens = copy.kv_tokens;
  if (copy.reported_s > t->endpoints[i].reported_s) {
    call_begin_report(&view, i, 0, copy.reported_s);
    module.report.running = copy.running;
    module.report.waiting = copy.waiting;
    module.report.kv_used_tokens = copy.kv_used_tokens;
    call_reported(&view, i, 0, now_s);
  }
}

/* Records the first tokens of answers that are not streamed, at their predicted times: nothing shows them earlier. */
static void apply_due(table *t, double now_s) {
  penstock_request none = {0};
  penstock_picker_table view = shared_view(t, &none);
  for (int64_t place = 0; place < (int64_t)module.workers * PLACES; place++) {
    penstock_flight *f = &module.flights[place];
    if (module.places[place] == WHOLE && f->endpoint >= 0 && f->first_s == INFINITY && f->sent_s + f->ttft_s <= now_s)
      call_first_token(&view, place, f->sent_s + f->ttft_s);
  }
}

/* Goes on with the fleet that is there, and does not try the same table again. */
static void refuse_table(table *next, int64_t generation) {
  warn(next ? "the fleet is not adopted: too many addresses of endpoints since the start; restart the gateway"
            : "the fleet is not adopted: its table cannot be read; restart the gateway", "");
  if (next) close_table(next);
  module.refused = generation;
}

static void keep_current(double now_s) {
  if (now_s - module.kept_s < 0.002 || !take_flag()) return;
  module.kept_s = now_s;
  apply_posted();
  table *t = atomic_load(&module.current);
  int64_t wanted = atomic_load_explicit(module.generation, memory_order_acquire);
  if (t->header->generation != wanted && module.refused != wanted) {
    table *next = open_table(module.folder, module.workers, wanted);
    if (next && install_table(next, now_s)) t = next;
    else refuse_table(next, wanted);
  }
  for (int64_t i = 0; i < t->header->endpoints; i++) apply_report(t, i, now_s);
  penstock_suspect_table suspects = suspects_of(t);
  call_end_suspicions(&suspects, now_s);
  if (now_s - module.due_s > 0.02) {
    module.due_s = now_s;
    apply_due(t, now_s);
    for (int i = 0; i < module.workers; i++) {
      memcpy(module.states[i].class_price, t->parameters->class_price, sizeof t->parameters->class_price);
      memcpy(module.states[i].class_kept, t->parameters->class_kept, sizeof t->parameters->class_kept);
    }
  }
  release_flag();
  apply_events();
}

/* --- Counters of a worker ------------------------------------------------------------------------------------------- */

/* Fits a worker's arrays to a table. Its counters go on, also after a restart of Envoy. */
static void prepare(worker *w, table *t) {
  size_t n = (size_t)t->header->endpoints;
  w->hits = realloc(w->hits, n * sizeof *w->hits);
  w->harms = realloc(w->harms, n * sizeof *w->harms);
  w->copy = realloc(w->copy, n * sizeof *w->copy);
  w->common = realloc(w->common, (size_t)t->header->prefix_words * sizeof *w->common);
  w->generation = t->header->generation;
  for (size_t i = 0; i < n; i++) {
    penstock_counts *row = &t->counts[(size_t)w->index * n + i], *own = &w->own[t->id[i]];
    if (!own->picked && row->picked) *own = *row, own->in_flight = 0;
    *row = *own;
  }
}

/* Returns the current table. It is not unmapped before `leave`. */
static table *enter(worker *w) {
  table *t;
  do atomic_store(&w->using, t = atomic_load(&module.current));
  while (t != atomic_load(&module.current));
  if (w->generation != t->header->generation) prepare(w, t);
  return t;
}

static void leave(worker *w) { atomic_store(&w->using, NULL); }

/* Copies a worker's counters of an endpoint to the table that Python reads. */
static void publish(worker *w, table *t, int64_t id) {
  for (int64_t i = 0, n = t->header->endpoints; i < n; i++)
    if (t->id[i] == id) t->counts[w->index * n + i] = w->own[id];
}

static int take_place(worker *w, uint8_t kind) {
  for (int32_t looked = 0; looked < PLACES; looked++) {
    int place = w->index * PLACES + (w->last_place = (w->last_place + 1) % PLACES);
    if (atomic_load_explicit(&module.places[place], memory_order_acquire) == FREE) {
      module.flights[place].endpoint = -1;
      atomic_store_explicit(&module.places[place], kind, memory_order_release);
      return place;
    }
  }
  return -1; /* routed, but not counted */
}

/* Gives Python the record of an ended or refused request. A full ring drops it. */
static void report_end(request *r, double now_s) {
  penstock_ring_head *ring = &module.rings[r->w->index];
  penstock_ended *records = (penstock_ended *)(module.rings + module.workers) + (size_t)r->w->index * PENSTOCK_RING_RECORDS;
  uint64_t at = ring->posted;
  r->seen.ended_s = now_s, r->seen.status = r->status;
  if (at - __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE) >= PENSTOCK_RING_RECORDS) {
    ring->dropped++;
    return;
  }
  records[at % PENSTOCK_RING_RECORDS] = r->seen;
  __atomic_store_n(&ring->posted, at + 1, __ATOMIC_RELEASE);
}

/* --- Decisions ------------------------------------------------------------------------------------------------------ */

/* Answers a request. Envoy may destroy it meanwhile, so nothing reads it afterwards. */
static void answer(envoy_filter f, request *r, int status, const char *reason, int64_t retry_s, const char *message) {
  char body[700], seconds[24];
  int length = snprintf(body, sizeof body,
                        "{\"error\": {\"message\": \"%s\", \"type\": \"%s\", \"param\": null, \"code\": %d}}", message,
                        reason, status);
  int digits = snprintf(seconds, sizeof seconds, "%lld", (long long)retry_s);
  envoy_header headers[] = {{"content-type", 12, "application/json", 16},
                            {"x-penstock-reason", 17, reason, strlen(reason)},
                            {"retry-after", 11, seconds, (size_t)digits}};
  r->status = status, r->seen.flags |= SEEN_REFUSED;
  report_end(r, penstock_module_clock());
  let_go(&r->held);
  ENVOY(http_send_response)(f, (uint32_t)status, headers, retry_s ? 3 : 2, (envoy_bytes){body, (size_t)length},
                            bytes_of("penstock"));
}

static const penstock_name *model_of(const table *t, const body_scan *s) {
  if (!s->has_model || (!s->model_length && t->header->names == 1)) return t->header->models == 1 ? t->names : NULL;
  for (int64_t i = 0; i < t->header->names; i++)
    if (t->names[i].length == s->model_length && !memcmp(t->names[i].text, s->model, s->model_length)) return &t->names[i];
  return NULL;
}

static const penstock_route_class *class_of(const table *t, int64_t bit, double input, double output) {
  const penstock_route_class *best = NULL;
  double least = INFINITY;
  for (int64_t i = 0; i < t->header->classes; i++) {
    const penstock_route_class *c = &t->classes[i];
    if (!(c->names & bit)) continue;
    double distance = fabs(log(input / c->input_tokens)) + fabs(log(output / c->output_tokens));
    if (!best || distance < least) best = c, least = distance;
  }
  return best;
}

static bool may_weigh_more(const table *t, const asked *a) {
  for (int64_t i = 0; i < t->header->criticals; i++)
    if (t->critical[i].length == (int64_t)a->tenant_length && !memcmp(t->critical[i].text, a->tenant, a->tenant_length)) return true;
  return t->header->criticals < 0;
}

/* Writes the request's record, and counts its arrival. Returns the seconds for which it may be held. */
static double describe(request *r, table *t, const penstock_name *name, double now_s) {
  worker *w = r->w;
  const asked *a = &r->asked;
  penstock_request *q = &w->request;
  int64_t limit = scan_limit(&r->scan), tokens = (int64_t)((double)r->scan.bytes / name->bytes_per_token);
  int64_t expected = (int64_t)name->output_tokens, number = q->number + 1;
  tokens = tokens < 1 ? 1 : tokens, expected = expected < 1 ? 1 : expected;
  if (limit && expected > limit) expected = limit;
  const penstock_route_class *c = class_of(t, name->bit, (double)tokens, (double)expected);
  *q = (penstock_request){.now_s = now_s, .model = name->bit, .input_tokens = tokens,
      .expected_output_tokens = expected, .output_limit_tokens = limit, .weight = may_weigh_more(t, a) ? a->weight : 1.0, .number = number,
      .turn = (number * INT64_C(2654435761) + w->index) & 0x7FFFFFFF, .slo_class = c ? c - t->classes : 0};
  double ttft_s = c ? c->ttft_s : INFINITY, tpot_s = c ? c->tpot_s : INFINITY;
  q->ttft_s = a->ttft_s > 0.0 ? fmax(a->ttft_s, c ? c->least_ttft_s : 0.0) : ttft_s;
  q->tpot_s = a->tpot_s > 0.0 ? fmax(a->tpot_s, c ? c->least_tpot_s : 0.0) : tpot_s;
  r->promised_ttft_s = fmax(q->ttft_s, ttft_s), r->promised_tpot_s = fmax(q->tpot_s, tpot_s);
  if (q->ttft_s < ttft_s || q->tpot_s < tpot_s) r->seen.flags |= SEEN_OWN;
  q->e2e_s = c ? c->e2e_s : INFINITY;
  q->waited_s = r->held.scheduler ? now_s - r->held.since_s : 0.0;
  q->sheddable = c && c->overload != OVERLOAD_SERVE ? c->overload : a->sheddable ? OVERLOAD_REFUSE : OVERLOAD_SERVE;
  memcpy(r->seen.tenant, a->tenant, a->tenant_length);
  int64_t buckets = t->header->tenants, bucket = 0;
  if (a->tenant_length) bucket = 1 + (int64_t)(scan_hash(a->tenant, a->tenant_length) % (uint64_t)(buckets - 1));
  penstock_tenant_table tenants = {t->tenants, {buckets}};
  double fair = call_tenant_weight(&tenants, bucket, now_s);
  q->tenant = bucket, q->weight *= fair;
  event e = {.kind = ARRIVED, .place = -1, .id = -1, .request = *q};
  if (!r->held.scheduler) post(w, &e);
  w->parameters = *t->parameters;
  if (q->sheddable) w->parameters.shed_fraction = t->header->shed_fraction * fair;
  return q->sheddable == OVERLOAD_HOLD && c ? fmin(c->hold_s, t->header->hold_share * q->ttft_s) : 0.0;
}

static penstock_picker_table own_view(worker *w, table *t) {
  int64_t n = t->header->endpoints;
  return (penstock_picker_table){.request = &w->request, .request_shape = {1}, .endpoints = t->endpoints,
      .endpoints_shape = {n}, .hits = w->hits, .hits_shape = {n}, .parameters = &w->parameters,
      .parameters_shape = {1}, .order = w->order, .order_shape = {MAX_CHOSEN}, .harms = w->harms, .harms_shape = {n}};
}

/* Returns where the inputs of this decision are recorded, or NULL if it is not one that Python records. */
static penstock_sample *begin_sample(worker *w, table *t) {
  int64_t every = t->header->sample_every;
  if (!every || w->state->decisions % every) return NULL;
  penstock_sample *s = &t->samples[w->index];
  return __atomic_load_n(&s->filled, __ATOMIC_ACQUIRE) ? NULL : s; /* Python has not read the last one */
}

static void end_sample(worker *w, table *t, penstock_sample *s, int64_t found) {
  size_t n = (size_t)t->header->endpoints;
  t->sampled_requests[w->index] = w->request, t->sampled_parameters[w->index] = w->parameters;
  memcpy(t->sampled_hits + (size_t)w->index * n, w->hits, n * sizeof *w->hits);
  memcpy(s->order, w->order, sizeof s->order);
  s->found = found;
  __atomic_store_n(&s->filled, 1, __ATOMIC_RELEASE);
}

/* Fills `order`, as the picker in Python does: first as asked, then shorter, then late. Returns the number found.
 *
 * A decision that is recorded reads a copy of the endpoints, which other workers do not change meanwhile. */
static int64_t rank(worker *w, table *t, const penstock_sample *sample) {
  size_t size = (size_t)t->header->endpoints * sizeof *w->copy;
  penstock_picker_table view = own_view(w, t);
  if (sample) {
    view.endpoints = t->sampled_endpoints + w->index * t->header->endpoints;
    memcpy(view.endpoints, t->endpoints, size);
  }
  int64_t found = call_rank(&view);
  if (!found && call_shorten_request(&view)) found = call_rank(&view);
  if (!found && w->request.sheddable) {
    penstock_picker_table late = view;
    memcpy(w->copy, view.endpoints, size);
    late.endpoints = w->copy;
    int64_t choice = call_late_choice(&late);
    if (!choice) return 0;
    w->request.sheddable = 0;
    found = call_rank(choice == 1 ? &late : &view);
    if (sample && choice == 1) memcpy(view.endpoints, w->copy, size);
  }
  return found;
}

/* Holds or answers a request for which no endpoint was found. It goes on if Envoy should choose by weight. */
static int refuse(envoy_filter f, request *r, table *t, double hold_s) {
  worker *w = r->w;
  int64_t most = 0, accepting = 0, limit = w->request.output_limit_tokens;
  char message[200];
  for (int64_t i = 0; i < t->header->endpoints; i++) {
    penstock_endpoint *e = &t->endpoints[i];
    if (!(e->serves & w->request.model)) continue;
    accepting += e->accepts;
    if (e->max_context_tokens > most) most = e->max_context_tokens;
  }
  if (!accepting) return GOES_ON;
  if (limit >= most) {
    w->state->invalid++;
    snprintf(message, sizeof message, "This model's maximum context length is %lld tokens; the request asks for %lld.",
             (long long)most, (long long)limit);
    answer(f, r, 400, "too-long", 0, message);
    return IS_ANSWERED;
  }
  if (w->request.waited_s < hold_s && hold(f, &r->held, w, hold_s)) return IS_HELD;
  penstock_picker_table view = own_view(w, t);
  int64_t wait_s = (int64_t)ceil(call_retry_after(&view));
  event e = {.kind = REFUSED, .place = -1, .id = -1, .request = w->request};
  if (r->seen.flags & SEEN_OWN) w->state->invalid++; /* the operator has not promised it */
  else post(w, &e), w->state->refused++;
  snprintf(message, sizeof message, "No endpoint can meet this request's SLO now. Retry after %lld s.", (long long)wait_s);
  answer(f, r, 429, "saturated", wait_s, message);
  return IS_ANSWERED;
}

static void set_header(envoy_filter f, const char *name, const char *value, size_t length) {
  ENVOY(http_set_header)(f, REQUEST_HEADERS, bytes_of(name), (envoy_bytes){value, length});
}

/* Tells Envoy where to send a request, and how long an endpoint may be silent before another is tried too.
 *
 * The first endpoint is set directly, which spares Envoy its load balancer; the header has the others, for retries.
 * What the routes say anyway needs no header: another endpoint after `min_silence_s`, and MAX_CHOSEN more tries. A route
 * is chosen again only for streams and among several models. */
static void direct(envoy_filter f, request *r, table *t, const penstock_name *name, double first_byte_s) {
  char text[MAX_CHOSEN * 66], number[24];
  size_t length = 0;
  const penstock_place *first = &module.known[r->ids[0]];
  int listed = r->chosen && ENVOY(http_set_upstream_override_host)(f, (envoy_bytes){(const char *)first->text, (size_t)first->length}, false);
  for (int i = listed; i < r->chosen; i++) {
    const penstock_place *place = &module.known[r->ids[i]];
    if (i > listed) text[length++] = ',';
    memcpy(text + length, place->text, (size_t)place->length);
    length += (size_t)place->length;
  }
  double silence_s = r->chosen ? fmin(3600.0, 4.0 * first_byte_s) : UNKNOWN_SILENCE_S;
  if (length) set_header(f, "x-gateway-destination-endpoint", text, length);
  if (silence_s > t->header->min_silence_s)
    set_header(f, "x-envoy-upstream-rq-per-try-timeout-ms", number,
               (size_t)snprintf(number, sizeof number, "%.0f", 1000 * silence_s));
  if (r->chosen && r->chosen < MAX_CHOSEN)
    set_header(f, "x-envoy-max-retries", number, (size_t)snprintf(number, sizeof number, "%d", r->chosen));
  if (r->chosen && atomic_load_explicit(&module.doubted[r->ids[0]], memory_order_relaxed))
    set_header(f, "x-envoy-retriable-status-codes", "400,422", 7);
  if (t->header->names > 1) set_header(f, "x-penstock-model", (const char *)name->text, (size_t)name->length);
  if (r->streamed) set_header(f, "x-penstock-streamed", "1", 1);
  if (t->header->names > 1 || r->streamed) ENVOY(http_clear_route_cache)(f);
}

/* Sends the request to the first endpoint of `order`. Returns the predicted seconds to the first byte, or a quarter of
 * `UNKNOWN_SILENCE_S` if another worker has not applied this worker's events yet. */
static double send_request(request *r, table *t, int64_t count, uint32_t blocks) {
  worker *w = r->w;
  int64_t first = w->order[0];
  for (r->chosen = 0; r->chosen < count; r->chosen++) {
    r->ids[r->chosen] = t->id[w->order[r->chosen]];
    r->cached[r->chosen] = w->hits[w->order[r->chosen]];
  }
  w->request.ttft_s = r->promised_ttft_s, w->request.tpot_s = r->promised_tpot_s;
  penstock_counts *own = &w->own[r->ids[0]];
  own->picked++, own->in_flight++, own->prompt_bytes += (int64_t)r->scan.bytes;
  double ttft_s = -1.0; /* unknown */
  r->place = take_place(w, r->shows_tokens ? STREAMED : WHOLE);
  if (r->place >= 0) {
    event e = {.kind = SENT, .place = r->place, .id = (int)r->ids[0], .number = w->hits[first], .choices = r->seen.choices,
               .request = w->request};
    post(w, &e);
    penstock_flight *flight = &module.flights[r->place];
    if (is_applied(w) && __atomic_load_n(&flight->endpoint, __ATOMIC_RELAXED) >= 0) ttft_s = flight->ttft_s;
  }
  own->predicted_ttft_s += fmax(0.0, ttft_s);
  publish(w, t, r->ids[0]);
  penstock_prefix_table prefix = {t->blocks, {t->header->prefix_rows}, t->holders,
      {t->header->prefix_rows, t->header->prefix_words}, w->keys, {blocks}, w->common, {t->header->prefix_words}, w->hits,
      {t->header->endpoints}};
  if (blocks) call_add_prefix(&prefix, blocks, first, w->request.now_s);
  if (ttft_s < 0.0) return UNKNOWN_SILENCE_S / 4.0;
  if (r->streamed) return ttft_s;
  return ttft_s + t->endpoints[first].tpot_now_s * (double)w->request.expected_output_tokens;
}

/* Notes for Python what is known of a request when it is decided. */
static void note_request(request *r, const table *t, const penstock_name *name, double now_s) {
  const penstock_request *q = &r->w->request;
  penstock_ended *e = &r->seen;
  int64_t bytes = (int64_t)r->scan.bytes, choices = r->scan.choices;
  e->generation = t->header->generation, e->name = name ? name - t->names : -1, e->prompt_bytes = bytes;
  e->choices = choices > 1 ? (choices < 128 ? choices : 128) : 1;
  r->shows_tokens = r->streamed && r->asked.tokens != TOKENS_AFTER_EVENTS;
  e->flags = (e->flags & SEEN_OWN) | (r->streamed ? SEEN_STREAMED : 0) | (r->asked.tokens ? SEEN_GENERATES : 0);
  e->counted_prompt = e->counted_cached = e->counted_output = -1;
  e->sent_s = now_s, e->waited_s = name ? q->waited_s : 0.0, e->slo_class = -1, e->ttft_limit_s = e->tpot_limit_s = e->e2e_limit_s = INFINITY;
  if (!name) return;
  if (t->header->classes && t->classes[q->slo_class].names & name->bit) e->slo_class = q->slo_class;
  e->tenant_bucket = q->tenant;
  e->input_tokens = q->input_tokens, e->expected_output_tokens = q->expected_output_tokens;
  e->ttft_limit_s = r->promised_ttft_s, e->tpot_limit_s = r->promised_tpot_s, e->e2e_limit_s = q->e2e_s;
}

/* Decides about a request whose body is complete, or again about one that is held. */
static int decide(envoy_filter f, request *r) {
  worker *w = r->w;
  double now_s = penstock_module_clock();
  keep_current(now_s);
  table *t = enter(w);
  r->decided = true, r->streamed = r->scan.stream;
  int decided = GOES_ON;
  const penstock_name *name = model_of(t, &r->scan);
  if (!name) {
    bool named = r->scan.has_model && r->scan.model_length;
    w->state->invalid++;
    note_request(r, t, NULL, now_s);
    answer(f, r, named ? 404 : 400, named ? "no-such-model" : "no-model", 0,
           named ? "The model does not exist; /v1/models lists the models." : "`model` is missing; /v1/models lists the models.");
    decided = IS_ANSWERED;
  } else {
    double hold_s = describe(r, t, name, now_s);
    uint32_t blocks = scan_keys(&r->scan, scan_hash((const char *)name->text, (size_t)name->length), w->keys);
    penstock_prefix_table prefix = {t->blocks, {t->header->prefix_rows}, t->holders,
        {t->header->prefix_rows, t->header->prefix_words}, w->keys, {blocks}, w->common, {t->header->prefix_words}, w->hits,
        {t->header->endpoints}};
    call_match_prefix(&prefix, blocks, SCAN_BLOCK_BYTES / name->bytes_per_token, w->request.input_tokens - 1, now_s);
    w->state->decisions++;
    penstock_sample *sample = begin_sample(w, t);
    int64_t count = rank(w, t, sample);
    if (sample) end_sample(w, t, sample, count);
    note_request(r, t, name, now_s);
    double first_byte_s = count ? send_request(r, t, count, blocks) : 0.0;
    if (!count) decided = refuse(f, r, t, hold_s);
    if (decided == GOES_ON) {
      r->sent = true;
      let_go(&r->held);
      direct(f, r, t, name, first_byte_s);
    }
    w->state->decide_s += penstock_module_clock() - now_s;
  }
  leave(w);
  return decided;
}

/* --- The answer ----------------------------------------------------------------------------------------------------- */

static void see_whole(request *r, const char *p, size_t length) { answer_piece(&r->answer, p, length); }

static void see_stream(request *r, const char *p, size_t length) {
  answer_piece(&r->answer, p, length);
  answer_events(&r->answer, p, length);
}

/* Whether an endpoint refused a request that others may serve: a redirect, a wrong key, a full queue. */
static bool is_refusal(int status) { return status / 100 == 3 || status == 401 || status == 403 || status == 429; }
static bool is_wrong(int status) { return status == 400 || status == 422; } /* the client's fault, unless peers answer */

/* Blames the endpoints that were tried before the one that answered, as soon as its answer begins. */
static void judge_tries(envoy_filter f, request *r, double now_s, bool at_end) {
  envoy_bytes served = {0};
  int64_t tries = r->seen.tries = number_in(f, REQUEST_HEADERS, "x-envoy-attempt-count");
  r->served_by = -1, r->judged = ENVOY(http_filter_get_attribute_string)(f, ATTRIBUTE_UPSTREAM_ADDRESS, &served) && served.length;
  if (!r->judged && !at_end) return;
  if (r->judged)
    for (int i = 0; i < r->chosen; i++) {
      const penstock_place *place = &module.known[r->ids[i]];
      if ((size_t)place->length == served.length && !memcmp(place->text, served.ptr, served.length)) r->served_by = i;
    }
  /* All gave the same answer, or no endpoint has the model or adapter: none is to blame. */
  bool everywhere = tries > 1 && (r->status == 404 || is_refusal(r->status) || is_wrong(r->status));
  if (r->status > 0 && r->status < 500 && !everywhere) {
    for (int i = 0; i < r->chosen && i < tries && i != r->served_by; i++)
      if (r->served_by > i || r->served_by < 0) {
        post_about(r->w, STRUCK, -1, r->ids[i], 0, now_s);
        r->w->own[r->ids[i]].struck++;
        publish(r->w, enter(r->w), r->ids[i]);
        leave(r->w);
      }
  }
  if (r->judged) memcpy(r->seen.endpoint, served.ptr, served.length < sizeof r->seen.endpoint ? served.length : sizeof r->seen.endpoint);
  if (r->served_by >= 0) r->seen.cached_tokens = r->cached[r->served_by];
  r->moved = r->judged && r->served_by != 0;
}

static void complete(envoy_filter f, request *r) {
  if (!r->sent) return;
  penstock_ended *e = &r->seen;
  double now_s = penstock_module_clock();
  uint64_t flags = 0;
  ENVOY(http_filter_get_attribute_int)(f, ATTRIBUTE_RESPONSE_FLAGS, &flags);
  bool upstream = flags & BROKEN_UPSTREAM, client_left = flags & CLIENT_LEFT;
  bool broken = upstream && !r->ended, failed = r->status >= 500 || is_refusal(r->status) || (!r->ended && !client_left && upstream);
  if (!r->judged) judge_tries(f, r, now_s, true);
  bool moved = r->moved, wrong = is_wrong(r->status), answered = !broken && !failed && !wrong && r->status > 0;
  if (r->served_by >= 0 && (answered || (wrong && e->tries <= 1)))
    atomic_store_explicit(&module.doubted[r->ids[r->served_by]], wrong, memory_order_relaxed);
  if (r->served_by >= 0 && (broken || answered)) post_about(r->w, broken ? STRUCK : ANSWERED, -1, r->ids[r->served_by], 0, now_s);
  answer_counts counted = r->status == 200 ? answer_usage(&r->answer) : (answer_counts){-1, -1, -1};
  e->counted_prompt = counted.prompt, e->counted_cached = counted.cached, e->counted_output = counted.output;
  e->pieces = r->answer.events, e->response_bytes = (int64_t)r->answer.bytes;
  int64_t events = e->pieces > 1 ? e->pieces - 1 : 0; /* the last event is [DONE] */
  int64_t tokens = e->counted_output >= 0 ? e->counted_output : r->streamed ? events : 0;
  bool finished = r->ended && r->status == 200 && !moved;
  bool left = client_left && !r->ended && (r->shows_tokens ? !e->first_s : r->status <= 0);
  e->flags |= (failed ? SEEN_FAILED : 0) | (moved && r->chosen ? SEEN_MOVED : 0) | (client_left && !r->ended ? SEEN_LEFT : 0);
  if (r->chosen) {
    penstock_counts *own = &r->w->own[r->ids[0]];
    own->ended++, own->in_flight--, own->failed += failed, own->moved += moved;
    if (finished && e->first_s) own->first_tokens++, own->ttft_sum_s += e->first_s - e->sent_s;
    if (finished && e->first_s && tokens > 1) own->decoded_tokens += tokens - 1, own->decode_sum_s += now_s - e->first_s;
    publish(r->w, enter(r->w), r->ids[0]);
    leave(r->w);
  }
  if (r->place >= 0) {
    const penstock_flight *flight = &module.flights[r->place];
    if (is_applied(r->w)) e->predicted_ttft_s = flight->ttft_s, e->predicted_decode_s = flight->decode_s;
    post_about(r->w, finished ? FINISHED : left ? LEFT : LOST, r->place, -1, tokens, now_s);
  }
  report_end(r, now_s);
  r->sent = false;
}

/* --- What Envoy calls ----------------------------------------------------------------------------------------------- */

const char *ON(program_init)(void) { return ENVOY_INTERFACE; }

static const char *open_library(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return "the compiled library cannot be opened: ";
#define FIND(name, macro)                                                                                              \
  {                                                                                                                    \
    const int64_t *layout = dlsym(library, "penstock_" #name "_layout");                                               \
    void *found = dlsym(library, "penstock_" #name);                                                                   \
    if (!found || !layout || *layout != PENSTOCK_##macro##_LAYOUT) return "the compiled library has other records: ";  \
    memcpy(&call_##name, &found, sizeof found);                                                                        \
  }
  FUNCTIONS(FIND)
  return NULL;
}

/* Opens the state, once per process. The configuration is the folder, the workers, the library and the reserved
 * headers, one per line. */
static const char *open_module(const char *config, char *library) {
  size_t size = 8;
  long long budget;
  if (sscanf(config, "%511[^\n]\n%d\n%511[^\n]\n%511[^\n]\n%lld %lld", module.folder, &module.workers, library, module.reserved,
             &module.most_bytes, &budget) != 6)
    return "no configuration: ";
  kept.most_of_tenant = budget;
  if (module.workers < 1 || module.workers > MAX_WORKERS) return "too many worker threads: ";
  const char *wrong = open_library(library);
  if (wrong) return wrong;
  module.generation = map_file(module.folder, "module.current", -1, false, &size);
  size = sizeof *module.states * (size_t)module.workers;
  module.states = map_file(module.folder, "pickers.table", -1, true, &size);
  module.flights = calloc((size_t)module.workers * PLACES, sizeof *module.flights);
  module.places = calloc((size_t)module.workers * PLACES, sizeof *module.places);
  size = (size_t)module.workers * (sizeof *module.rings + PENSTOCK_RING_RECORDS * sizeof(penstock_ended));
  module.rings = map_file(module.folder, "ended.table", -1, true, &size);
  if (!module.generation || !module.states || !module.rings || !module.flights || !module.places) return "the state cannot be opened: ";
  for (int i = 0; i < module.workers; i++) {
    worker *w = module.worker[i] = calloc(1, sizeof *w);
    w->index = i, w->generation = -1, w->state = &module.states[i];
    w->request.number = (int64_t)(monotonic_s() * 1e6);
  }
  return NULL;
}

/* Opens the table at the first request: a process that only validates a configuration must not touch it. */
static bool has_table(void) {
  if (atomic_load(&module.current)) return true;
  while (!take_flag()) {}
  table *t = atomic_load(&module.current) ? NULL : open_table(module.folder, module.workers, atomic_load(module.generation));
  if (t && !install_table(t, penstock_module_clock())) close_table(t);
  release_flag();
  return atomic_load(&module.current);
}

const void *ON_FILTER(config_new)(void *config_of_envoy, envoy_bytes name, envoy_bytes config) {
  char text[1700], library[512] = "";
  (void)config_of_envoy, (void)name;
  snprintf(text, sizeof text, "%.*s", (int)(config.length < 1600 ? config.length : 1600), config.ptr);
  if (!module.opened) {
    const char *wrong = open_module(text, library);
    if (wrong) {
      warn(wrong, library);
      return NULL;
    }
    module.opened = true;
  }
  return &module;
}
void ON_FILTER(config_destroy)(const void *config) { (void)config; }

const void *ON_FILTER(new)(const void *config, envoy_filter f) {
  (void)config;
  uint32_t index = ENVOY(http_filter_get_worker_index)(f);
  request *r = calloc(1, sizeof *r);
  if (r) r->place = -1, r->w = index < (uint32_t)module.workers && has_table() ? module.worker[index] : NULL;
  return r;
}
void ON_FILTER(destroy)(const void *m) {
  request *r = (request *)(uintptr_t)m;
  forget_bytes(&r->kept);
  let_go(&r->held);
  free(r);
}

int ON_FILTER(request_headers)(envoy_filter f, void *m, bool end) {
  request *r = m;
  if (!read_headers(f, module.reserved, &r->asked)) {
    r->decided = true, ENVOY(http_send_response)(f, 431, NULL, 0, bytes_of("too many headers"), bytes_of("penstock"));
    return HEADERS_STOP;
  }
  if (!end) ENVOY(http_set_buffer_limit)(f, (uint64_t)module.most_bytes); /* over HTTP/2 it would be the window */
  if (r->asked.tenant_length) r->kept.tenant = 1 + (int)(scan_hash(r->asked.tenant, r->asked.tenant_length) % (KEPT_TENANTS - 1));
  if (!r->w || !end) return r->w ? HEADERS_STOP : HEADERS_CONTINUE;
  table *t = enter(r->w);
  if (t->header->names > 1) { /* without a body there is nothing to decide, but routes need a model */
    set_header(f, "x-penstock-model", (const char *)t->names[0].text, (size_t)t->names[0].length);
    ENVOY(http_clear_route_cache)(f);
  }
  leave(r->w);
  return HEADERS_CONTINUE;
}

/* Calls a function with each piece that has just arrived. */
static void each_piece(envoy_filter f, int body, request *r, void (*with)(request *, const char *, size_t)) {
  envoy_bytes pieces[64], *all = pieces;
  size_t count = ENVOY(http_get_body_chunks_size)(f, body);
  if (count > 64 && !(all = malloc(count * sizeof *all))) return;
  if (count && ENVOY(http_get_body_chunks)(f, body, all))
    for (size_t i = 0; i < count; i++)
      if (all[i].length) with(r, all[i].ptr, all[i].length);
  if (all != pieces) free(all);
}

static void scan_request(request *r, const char *p, size_t length) { scan_piece(&r->scan, p, length); }

/* Answers a request whose body would not fit the budget of its tenant, or of all. */
static int refuse_bytes(envoy_filter f, request *r) {
  r->decided = true, r->w->state->invalid++;
  note_request(r, enter(r->w), NULL, penstock_module_clock());
  leave(r->w);
  answer(f, r, 429, "too-many-bytes", 1, "Too many bytes of requests are under way. Retry after 1 s.");
  return BODY_STOP;
}

int ON_FILTER(request_body)(envoy_filter f, void *m, bool end) {
  request *r = m;
  if (!r->w || r->decided) return BODY_CONTINUE;
  each_piece(f, RECEIVED_REQUEST_BODY, r, scan_request);
  if (!keep_bytes(&r->kept, (int64_t)r->scan.bytes)) return refuse_bytes(f, r);
  if (!end) return BODY_STOP_AND_BUFFER;
  int decided = decide(f, r);
  return decided == GOES_ON ? BODY_CONTINUE : decided == IS_HELD ? BODY_STOP_AND_BUFFER : BODY_STOP;
}

int ON_FILTER(request_trailers)(envoy_filter f, void *m) {
  request *r = m;
  return !r->w || r->decided || decide(f, r) == GOES_ON ? HEADERS_CONTINUE : HEADERS_STOP;
}

void ON_FILTER(scheduled)(envoy_filter f, void *m, uint64_t turn) {
  request *r = m;
  if (!r->held.scheduler || is_behind(&r->held, turn, penstock_module_clock())) return;
  int decided = decide(f, r);
  if (decided == IS_HELD) stay(&r->held, turn);
  if (decided == GOES_ON) ENVOY(http_filter_continue_decoding)(f);
}

int ON_FILTER(response_headers)(envoy_filter f, void *m, bool end) {
  request *r = m;
  r->status = (int)number_in(f, RESPONSE_HEADERS, ":status");
  r->ended = end;
  forget_bytes(&r->kept); /* Envoy tries no other endpoint from now on */
  if (r->sent && r->status < 500) judge_tries(f, r, penstock_module_clock(), false);
  return HEADERS_CONTINUE;
}

int ON_FILTER(response_body)(envoy_filter f, void *m, bool end) {
  request *r = m;
  r->ended = end;
  if (!r->sent) return BODY_CONTINUE;
  if (r->shows_tokens && !r->seen.first_s && r->status == 200 && ENVOY(http_get_body_chunks_size)(f, RECEIVED_RESPONSE_BODY)) {
    r->seen.first_s = penstock_module_clock();
    if (r->place >= 0) post_about(r->w, FIRST, r->place, -1, 0, r->seen.first_s);
  }
  each_piece(f, RECEIVED_RESPONSE_BODY, r, r->streamed ? see_stream : see_whole);
  return BODY_CONTINUE;
}

int ON_FILTER(response_trailers)(envoy_filter f, void *m) {
  (void)f, ((request *)m)->ended = true;
  return HEADERS_CONTINUE;
}

void ON_FILTER(stream_complete)(envoy_filter f, void *m) {
  request *r = m;
  if (r->held.scheduler) r->seen.flags |= SEEN_LEFT, report_end(r, penstock_module_clock());
  let_go(&r->held);
  complete(f, r);
}
int ON_FILTER(local_reply)(envoy_filter f, void *m, uint32_t status, envoy_bytes details, bool reset) {
  (void)f, (void)m, (void)status, (void)details, (void)reset;
  return 0;
}

/* Envoy refuses a module that lacks one of these, though nothing makes it call them. */
#define UNUSED(name) void ON_FILTER(name)(void) {}
UNUSED(http_callout_done) UNUSED(http_stream_headers) UNUSED(http_stream_data) UNUSED(http_stream_trailers)
UNUSED(http_stream_complete) UNUSED(http_stream_reset) UNUSED(config_scheduled)
UNUSED(config_http_callout_done) UNUSED(config_http_stream_headers) UNUSED(config_http_stream_data)
UNUSED(config_http_stream_trailers) UNUSED(config_http_stream_complete) UNUSED(config_http_stream_reset)
UNUSED(downstream_above_write_buffer_high_watermark) UNUSED(downstream_below_write_buffer_low_watermark)
UNUSED(per_route_config_destroy)
void *ON_FILTER(per_route_config_new)(envoy_bytes name, envoy_bytes config) {
  (void)name, (void)config;
  return NULL;
}
