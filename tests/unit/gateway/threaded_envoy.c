/* The module with several worker threads: each sends requests that are cut anywhere, and answers or drops them.
 *
 * A program for ThreadSanitizer: threaded_envoy FOLDER WORKERS LIBRARY SEED BODIES. Meanwhile another process, the test,
 * writes reports, reloads the fleet and reads the ring, as Python does in a gateway.
 */
#define FUZZ
#define main fuzz_main
#include "fake_envoy.c"
#undef main

#include <pthread.h>

enum { OPEN = 24 };
static long bodies_per_thread;
static uint64_t seed;
static _Atomic long sent;

static size_t make_request(char *body, size_t room) {
  if (draw(10) == 0) return make_body(body, room);
  size_t length = (size_t)snprintf(body, room, "{\"model\":\"m\",\"stream\":%s,\"max_tokens\":%u,\"messages\":[{\"content\":\"",
                                   draw(2) ? "true" : "false", 1 + draw(300));
  size_t text = draw(8) ? draw(600) : draw(12000);
  memset(body + length, 'a' + (int)draw(3), text);
  length += text;
  return length + (size_t)snprintf(body + length, room - length, "\"}]}");
}

static void end_request(handle *h, const char *destination) {
  static const char STREAM[] = "data: {}\n\ndata: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n";
  static const char WHOLE_ANSWER[] = "{\"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 20}}";
  bool stream = draw(2);
  const char *answer = stream ? STREAM : WHOLE_ANSWER;
  size_t length = strlen(answer), cut = draw((uint32_t)length);
  if (destination[0] && draw(10)) {
    h->envoy.answer_status = draw(20) ? 200 : 503, h->envoy.answer = answer, h->envoy.answer_length = cut;
    ON_FILTER(response_headers)(&h->envoy, h->filter, false);
    ON_FILTER(response_body)(&h->envoy, h->filter, false);
    h->envoy.answer = answer + cut, h->envoy.answer_length = length - cut;
    if (draw(10)) ON_FILTER(response_body)(&h->envoy, h->filter, true);
  }
  char upstream[64];
  snprintf(upstream, sizeof upstream, "%.*s", (int)strcspn(destination, ","), destination);
  fake_end(h, upstream, 1 + (int)draw(2));
}

static void *run_worker(void *number) {
  worker_of_thread = (uint32_t)(uintptr_t)number;
  state = seed + worker_of_thread;
  static _Thread_local char body[16384];
  static _Thread_local struct { handle *h; char destination[256]; } open_requests[OPEN];
  for (long turn = 0; turn < bodies_per_thread; turn++) {
    int at = (int)draw(OPEN), status;
    if (open_requests[at].h) end_request(open_requests[at].h, open_requests[at].destination);
    size_t length = make_request(body, sizeof body);
    open_requests[at].h = fake_request(body, length, draw((uint32_t)length + 1), draw(2) ? "tenant" : "",
                                       open_requests[at].destination, &status);
    atomic_fetch_add(&sent, 1);
  }
  for (int at = 0; at < OPEN; at++)
    if (open_requests[at].h) end_request(open_requests[at].h, open_requests[at].destination);
  return NULL;
}

int main(int count, char **given) {
  if (count != 6) return 2;
  int workers = atoi(given[2]);
  seed = strtoull(given[4], NULL, 10), bodies_per_thread = strtol(given[5], NULL, 10) / workers;
  if (!ON_FILTER(config_new)(NULL, bytes_of("penstock"), bytes_of(given[3]))) return 3;
  pthread_t threads[MAX_WORKERS];
  for (int i = 0; i < workers; i++) pthread_create(&threads[i], NULL, run_worker, (void *)(uintptr_t)i);
  for (int i = 0; i < workers; i++) pthread_join(threads[i], NULL);
  printf("%ld requests\n", atomic_load(&sent));
  return 0;
}
