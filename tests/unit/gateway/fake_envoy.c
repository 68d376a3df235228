/* The module with a fake Envoy around it: requests, answers and the clock come from a test.
 *
 * As a library it records the inputs and the result of each ranking. With -DFUZZ it is a program: fake_envoy SEED BODIES.
 */
#include "../../../src/penstock/gateway/inside_envoy/envoy_module.c"

static const char *fake_path = "/v1/chat/completions?x=1";
static uint64_t fake_flags; /* Envoy's response flags of ended requests */
void fake_set(const char *path, uint64_t flags) { fake_path = path, fake_flags = flags; }

typedef struct fake {
  const char *body, *answer, *tenant;
  size_t length, answer_length;
  int let_go, goes_on;
  int answer_status, status; /* of the endpoint, and of the module's own answer */
  int64_t retry_s; /* of the module's own answer; 0 without Retry-After */
  char destination[256], attempts[8], upstream[64];
} fake;

size_t ENVOY(http_get_body_chunks_size)(envoy_filter f, int body) {
  fake *x = f;
  return (body == RECEIVED_REQUEST_BODY ? x->length : x->answer_length) ? 1 : 0;
}
bool ENVOY(http_get_body_chunks)(envoy_filter f, int body, envoy_bytes *chunks) {
  fake *x = f;
  *chunks = body == RECEIVED_REQUEST_BODY ? (envoy_bytes){x->body, x->length} : (envoy_bytes){x->answer, x->answer_length};
  return true;
}
bool ENVOY(http_get_header)(envoy_filter f, int of, envoy_bytes key, envoy_bytes *value, size_t index, size_t *count) {
  fake *x = f;
  static _Thread_local char status[8];
  (void)index, (void)count;
  snprintf(status, sizeof status, "%d", x->answer_status);
  const char *found = NULL;
  if (of == RESPONSE_HEADERS && !strcmp(key.ptr, ":status")) found = status;
  if (of == REQUEST_HEADERS && !strcmp(key.ptr, "x-envoy-attempt-count")) found = x->attempts;
  if (found) *value = bytes_of(found);
  return found;
}

/* Further headers of the next requests, as key, value, key, value. A removed one has no key. */
enum { MORE_HEADERS = 160 };
static _Thread_local char more_headers[MORE_HEADERS][2][200];
static _Thread_local size_t more_count;
void fake_header(const char *key, const char *value) {
  if (!key) more_count = 0;
  else snprintf(more_headers[more_count][0], 200, "%s", key), snprintf(more_headers[more_count++][1], 200, "%s", value);
}
size_t fake_headers_left(void) {
  size_t left = 0;
  for (size_t i = 0; i < more_count; i++) left += more_headers[i][0][0] != 0;
  return left;
}
size_t ENVOY(http_get_headers_size)(envoy_filter f, int of) { return (void)of, 1 + more_count + !!((fake *)f)->tenant[0]; }
bool ENVOY(http_get_headers)(envoy_filter f, int of, envoy_header *headers) {
  fake *x = f;
  (void)of;
  *headers++ = (envoy_header){":path", 5, fake_path, strlen(fake_path)};
  if (x->tenant[0]) *headers++ = (envoy_header){"x-penstock-tenant", 17, x->tenant, strlen(x->tenant)};
  for (size_t i = 0; i < more_count; i++)
    *headers++ = (envoy_header){more_headers[i][0], strlen(more_headers[i][0]), more_headers[i][1], strlen(more_headers[i][1])};
  return true;
}
bool ENVOY(http_set_upstream_override_host)(envoy_filter f, envoy_bytes address, bool strict) {
  (void)strict;
  snprintf(((fake *)f)->destination, sizeof((fake *)f)->destination, "%.*s", (int)address.length, address.ptr);
  return true;
}
bool ENVOY(http_set_header)(envoy_filter f, int of, envoy_bytes key, envoy_bytes value) {
  fake *x = f;
  (void)of;
  for (size_t i = 0; i < more_count && !value.ptr; i++)
    if (strlen(more_headers[i][0]) == key.length && !memcmp(more_headers[i][0], key.ptr, key.length)) more_headers[i][0][0] = 0;
  size_t length = strlen(x->destination);
  if (value.ptr && !strcmp(key.ptr, "x-gateway-destination-endpoint"))
    snprintf(x->destination + length, sizeof x->destination - length, ",%.*s", (int)value.length, value.ptr);
  return true;
}
void ENVOY(http_send_response)(envoy_filter f, uint32_t status, envoy_header *headers, size_t count, envoy_bytes body,
                               envoy_bytes details) {
  (void)body, (void)details;
  ((fake *)f)->status = (int)status;
  for (size_t i = 0; i < count; i++)
    if (!strcmp(headers[i].key, "retry-after")) ((fake *)f)->retry_s = strtoll(headers[i].value, NULL, 10);
}
void ENVOY(http_set_buffer_limit)(envoy_filter f, uint64_t bytes) { (void)f, (void)bytes; }
void ENVOY(http_clear_route_cache)(envoy_filter f) { (void)f; }
bool ENVOY(http_filter_get_attribute_int)(envoy_filter f, int attribute, uint64_t *value) {
  (void)f, *value = attribute == ATTRIBUTE_RESPONSE_FLAGS ? fake_flags : 0;
  return true;
}
bool ENVOY(http_filter_get_attribute_string)(envoy_filter f, int attribute, envoy_bytes *value) {
  (void)attribute;
  *value = bytes_of(((fake *)f)->upstream);
  return true;
}
envoy_scheduler ENVOY(http_filter_scheduler_new)(envoy_filter f) { return f; }
void ENVOY(http_filter_scheduler_commit)(envoy_scheduler s, uint64_t event) { (void)s, (void)event; } /* the test does it */
void ENVOY(http_filter_scheduler_delete)(envoy_scheduler s) { ((fake *)s)->let_go++; }
void ENVOY(http_filter_continue_decoding)(envoy_filter f) { ((fake *)f)->goes_on++; }
static _Thread_local uint32_t worker_of_thread;
uint32_t ENVOY(http_filter_get_worker_index)(envoy_filter f) { return (void)f, worker_of_thread; }
void ENVOY(log)(int level, envoy_bytes message) { fprintf(stderr, "%d %.*s\n", level, (int)message.length, message.ptr); }

static double fake_s;
static double fake_clock(void) { return fake_s; }
void fake_time(double now_s) { fake_s = now_s; }

/* The inputs of the last ranking, and its result. */
static struct {
  penstock_request request;
  penstock_parameters parameters;
  penstock_endpoint endpoints[256];
  int64_t hits[256], order[MAX_CHOSEN], found;
} last;

static __typeof__(call_rank) real_rank;
static int64_t recorded_rank(const penstock_picker_table *t) {
  size_t n = (size_t)t->endpoints_shape[0] < 256 ? (size_t)t->endpoints_shape[0] : 256;
  last.request = *t->request, last.parameters = *t->parameters;
  memcpy(last.endpoints, t->endpoints, n * sizeof *t->endpoints);
  memcpy(last.hits, t->hits, n * sizeof *t->hits);
  last.found = real_rank(t);
  memcpy(last.order, t->order, sizeof last.order);
  return last.found;
}
const void *fake_last(void) { return &last; }

int fake_open(const char *config) {
  penstock_module_clock = fake_clock;
  if (!ON_FILTER(config_new)(NULL, bytes_of("penstock"), bytes_of(config))) return 0;
  real_rank = call_rank, call_rank = recorded_rank;
  return 1;
}

/* A request, cut into two pieces. Returns its handle; `destination` gets the endpoints to try. */
typedef struct { fake envoy; void *filter; } handle;
handle *fake_request(const char *body, size_t length, size_t cut, const char *tenant, char *destination, int *status) {
  handle *h = calloc(1, sizeof *h);
  h->envoy.tenant = tenant;
  h->filter = (void *)(uintptr_t)ON_FILTER(new)(NULL, &h->envoy);
  ON_FILTER(request_headers)(&h->envoy, h->filter, false);
  h->envoy.body = body, h->envoy.length = cut;
  ON_FILTER(request_body)(&h->envoy, h->filter, false);
  h->envoy.body = body + cut, h->envoy.length = length - cut;
  ON_FILTER(request_body)(&h->envoy, h->filter, true);
  strcpy(destination, h->envoy.destination);
  *status = h->envoy.status;
  return h;
}

int64_t fake_retry_after(const handle *h) { return h->envoy.retry_s; }

/* Ties between equal endpoints follow the numbers of requests, which begin at the time otherwise. */
void fake_number(int64_t number) { module.worker[0]->request.number = number; }

/* Lets a held request be decided again. Returns how often it was held and let go, and went on then, in two digits. */
int fake_turn(handle *h, int turn, char *destination, int *status) {
  ON_FILTER(scheduled)(&h->envoy, h->filter, (uint64_t)turn);
  strcpy(destination, h->envoy.destination);
  *status = h->envoy.status;
  return 10 * h->envoy.let_go + h->envoy.goes_on;
}

void fake_answer(handle *h, int status, const char *piece, size_t length, bool end) {
  h->envoy.answer_status = status, h->envoy.answer = piece, h->envoy.answer_length = length;
  ON_FILTER(response_headers)(&h->envoy, h->filter, false);
  ON_FILTER(response_body)(&h->envoy, h->filter, end);
}

/* A further piece of an answer that has begun. */
void fake_piece(handle *h, const char *piece, size_t length, bool end) {
  h->envoy.answer = piece, h->envoy.answer_length = length;
  ON_FILTER(response_body)(&h->envoy, h->filter, end);
}

void fake_end(handle *h, const char *upstream, int attempts) {
  snprintf(h->envoy.upstream, sizeof h->envoy.upstream, "%s", upstream);
  snprintf(h->envoy.attempts, sizeof h->envoy.attempts, "%d", attempts);
  ON_FILTER(stream_complete)(&h->envoy, h->filter);
  ON_FILTER(destroy)(h->filter);
  free(h);
}

/* Scans a body in pieces of at most `piece` bytes after the first `cut`, each in memory of its exact size. */
static void scan_cut(body_scan *s, const char *body, size_t length, size_t cut, size_t piece) {
  memset(s, 0, sizeof *s);
  for (size_t at = 0; at < length;) {
    size_t size = at < cut ? cut - at : piece < length - at ? piece : length - at;
    char *copy = malloc(size);
    memcpy(copy, body + at, size);
    scan_piece(s, copy, size);
    free(copy);
    at += size;
  }
}

int64_t fake_scan(const char *body, size_t length, size_t cut, size_t piece, char *model, int64_t *numbers, int64_t *keys) {
  body_scan s;
  scan_cut(&s, body, length, cut, piece);
  memcpy(model, s.model, s.model_length);
  model[s.model_length] = 0;
  numbers[0] = s.has_model, numbers[1] = scan_limit(&s), numbers[2] = s.stream, numbers[3] = s.choices;
  return scan_keys(&s, 1, keys);
}

static bool same(const body_scan *a, const body_scan *b) {
  return a->has_model == b->has_model && a->model_length == b->model_length && !memcmp(a->model, b->model, a->model_length) &&
         a->stream == b->stream && scan_limit(a) == scan_limit(b) && a->choices == b->choices && a->blocks == b->blocks &&
         !memcmp(a->chain, b->chain, a->blocks * sizeof *a->chain) && a->bytes == b->bytes;
}

#ifdef FUZZ
static _Thread_local uint64_t state;
static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(state >> 33) % below;
}

static size_t make_body(char *body, size_t room) {
  static const char *const WORDS[] = {"{", "}", "[", "]", "\"", "\\", "\\\"", ":", ",", "\"model\"", "\"m\"", "\"max_tokens\":",
      "\"max_completion_tokens\": ", "\"stream\":true", "\"n\":3", "\"messages\":", "\"prompt\":\"", "12", "-1.5e3", "null",
      "\\u0041", "\\u00", "{\"model\":\"m\",", "\\\\", " ", "\n", "text text text", "{\"messages\":[{\"content\":\"", "\xff\x00",
      "\"usage\":{", "\"usage\": null", "\"usage\":{\"prompt_tokens\":7}", "\"prompt_tokens\":7", "\"completion_tokens\": 12345678901", "\"cached_tokens\"", "\"output_tokens\": :5"};
  size_t length = 0, words = draw(60), copies = draw(8) == 0 ? 200 : 1;
  for (size_t i = 0; i < words; i++) {
    const char *word = WORDS[draw(sizeof WORDS / sizeof *WORDS)];
    for (size_t turn = 0; turn < copies && length + 40 < room; turn++) {
      memcpy(body + length, word, strlen(word));
      length += strlen(word);
    }
    if (draw(6) == 0 && length + 1 < room) body[length++] = (char)draw(256);
  }
  return length;
}

int main(int count, char **given) {
  if (count != 3) return 2;
  state = strtoull(given[1], NULL, 10);
  static char body[16384];
  uint64_t scans = 0;
  for (long number = strtol(given[2], NULL, 10); number > 0; number--) {
    size_t length = make_body(body, sizeof body);
    body_scan whole, cut;
    answer_scan joined = {0}, split;
    scan_cut(&whole, body, length, length, length + 1);
    answer_events(&joined, body, length), answer_piece(&joined, body, length);
    answer_counts counted = answer_usage(&joined), again;
    /* Every boundary at once, in pieces of one byte. Then one boundary after the other, or some for nine of ten bodies. */
    scan_cut(&cut, body, length, 0, length < 1000 ? 1 : 1 + draw(30));
    if (!same(&whole, &cut)) return fprintf(stderr, "pieces of a byte differ: %.*s\n", (int)length, body), 1;
    bool each = number % 10 == 0;
    for (size_t at = 0; at <= length; at += each && length < 400 ? 1 : 1 + draw((uint32_t)length / (each ? 40 : 1) + 1), scans++) {
      scan_cut(&cut, body, length, at, 1 + draw(at % 7 ? 2000 : 3));
      if (!same(&whole, &cut)) return fprintf(stderr, "cut at %zu of %zu differs: %.*s\n", at, length, (int)length, body), 1;
      char *first = malloc(at + 1), *second = malloc(length - at + 1);
      memcpy(first, body, at), memcpy(second, body + at, length - at);
      split = (answer_scan){0};
      answer_events(&split, first, at), answer_piece(&split, first, at);
      answer_events(&split, second, length - at), answer_piece(&split, second, length - at);
      free(first), free(second);
      again = answer_usage(&split);
      if (split.events != joined.events) return fprintf(stderr, "events differ: cut at %zu\n", at), 1;
      if (memcmp(&again, &counted, sizeof again)) return fprintf(stderr, "usage differs: cut at %zu\n", at), 1;
    }
  }
  printf("%llu scans\n", (unsigned long long)scans);
  return 0;
}
#endif
