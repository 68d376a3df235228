/* Holds requests until serving them does less harm, or until they have waited long enough.
 *
 * Envoy gives an HTTP filter no timer. A thread of the module therefore wakes the worker of each held request 20 times a
 * second, oldest first, and the worker decides again. A younger request has waited less, so it would be admitted first.
 * As in the simulator, it is therefore not decided again in a turn in which its worker still holds an older one of its
 * class, unless it has clearly more weight. The lock is taken for held requests only.
 */
#ifndef PENSTOCK_HELD_REQUESTS_H
#define PENSTOCK_HELD_REQUESTS_H

#include <pthread.h>
#include <time.h>

#include "envoy_abi.h"
#include "shared_state.h"

enum { MAX_HELD = 1000, HOLD_TURN_NS = 50000000 }; /* requests of one worker; time until each is decided again */

static const double MORE = 1.1; /* weights of a tenant's requests differ a little over time */

typedef struct held_request held_request;
struct held_request {
  envoy_scheduler scheduler; /* NULL: not held */
  double since_s, until_s, weight;
  worker *w;
  int kind; /* place of its class among the turns of its worker */
  held_request *next, **link; /* among all held requests, oldest first */
};

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t any;
  held_request *first, **end;
  uint64_t turn;
  bool has_thread;
} held = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &held.first, 0, false};

static void *wake_held(void *unused) {
  const struct timespec pause = {.tv_nsec = HOLD_TURN_NS};
  pthread_mutex_lock(&held.mutex);
  for (;;) {
    while (!held.first) pthread_cond_wait(&held.any, &held.mutex);
    held.turn++;
    for (held_request *h = held.first; h; h = h->next) ENVOY(http_filter_scheduler_commit)(h->scheduler, held.turn);
    pthread_mutex_unlock(&held.mutex);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&held.mutex);
  }
  return unused;
}

/* Holds a request. Returns false if its worker holds too many, or if no thread would wake it. */
static bool hold(envoy_filter f, held_request *h, worker *w, double hold_s) {
  pthread_t thread;
  h->weight = w->request.weight;
  if (h->scheduler) return true;
  if (w->holding >= MAX_HELD) return false;
  pthread_mutex_lock(&held.mutex);
  if (!held.has_thread) held.has_thread = !pthread_create(&thread, NULL, wake_held, NULL) && !pthread_detach(thread);
  if (held.has_thread && (h->scheduler = ENVOY(http_filter_scheduler_new)(f))) {
    h->since_s = w->request.now_s, h->until_s = h->since_s + hold_s, h->w = w;
    h->kind = w->request.slo_class < KINDS ? (int)w->request.slo_class : KINDS - 1;
    h->next = NULL, h->link = held.end;
    *held.end = h, held.end = &h->next;
    pthread_cond_signal(&held.any);
  }
  pthread_mutex_unlock(&held.mutex);
  if (!h->scheduler) return false;
  w->holding++, w->state->held++;
  return true;
}

/* Returns whether the worker still holds an older request of the class after this turn. */
static bool is_behind(const held_request *h, uint64_t turn, double now_s) {
  const held_turn *t = &h->w->turns[h->kind];
  return t->turn == turn && h->weight <= MORE * t->weight && now_s < h->until_s;
}

/* Notes that a request is still held after a turn. */
static void stay(const held_request *h, uint64_t turn) { h->w->turns[h->kind] = (held_turn){turn, h->weight}; }

static void let_go(held_request *h) {
  if (!h->scheduler) return;
  pthread_mutex_lock(&held.mutex);
  *(h->next ? &h->next->link : &held.end) = h->link;
  *h->link = h->next;
  pthread_mutex_unlock(&held.mutex);
  ENVOY(http_filter_scheduler_delete)(h->scheduler);
  h->scheduler = NULL, h->w->holding--;
}

#endif
