/* Watches an answer as it passes: bytes, the events of a stream, and the engine's counts of tokens at the end.
 *
 * Its results do not depend on where the answer is cut into pieces. It keeps no more than the last bytes.
 */
#ifndef PENSTOCK_ANSWER_SCAN_H
#define PENSTOCK_ANSWER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ANSWER_TAIL = 1024 }; /* bytes at the end of an answer in which engines write `usage` */

typedef struct answer_scan {
  uint64_t bytes;
  int64_t events;
  bool after_newline;
  char tail[ANSWER_TAIL];
} answer_scan;

typedef struct answer_counts { int64_t prompt, cached, output; } answer_counts; /* -1: the engine wrote none */

/* Counts the events of a stream: each ends with an empty line. */
static inline void answer_events(answer_scan *s, const char *p, size_t length) {
  const char *end = p + length;
  if (length && s->after_newline && *p == '\n') s->events++, p++;
  s->after_newline = false;
  while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
    if (++p == end) s->after_newline = true;
    else if (*p == '\n') s->events++, p++;
  }
}

/* Keeps the last bytes of an answer. */
static inline void answer_piece(answer_scan *s, const char *p, size_t length) {
  size_t kept = length < ANSWER_TAIL ? length : ANSWER_TAIL, at = (s->bytes + length - kept) % ANSWER_TAIL;
  size_t first = kept < ANSWER_TAIL - at ? kept : ANSWER_TAIL - at;
  p += length - kept;
  memcpy(s->tail + at, p, first);
  memcpy(s->tail, p + first, kept - first);
  s->bytes += length;
}

/* Returns the last number that a field with a name has, or -1. */
static inline int64_t answer_number(const char *text, size_t length, const char *name) {
  int64_t value = -1;
  const char *at = text, *end = text + length;
  while ((at = memmem(at, (size_t)(end - at), name, strlen(name)))) {
    for (at += strlen(name); at < end && (*at == ' ' || *at == ':'); at++) {}
    int64_t number = at < end && *at >= '0' && *at <= '9' ? 0 : -1;
    for (; at < end && *at >= '0' && *at <= '9' && number < 1000000000; at++) number = number * 10 + (*at - '0');
    if (number >= 0) value = number;
  }
  return value;
}

/* Reads the engine's counts from the end of an answer. */
static inline answer_counts answer_usage(const answer_scan *s) {
  static const char *const NAMES[3][2] = {{"\"prompt_tokens\"", "\"input_tokens\""},
      {"\"cached_tokens\"", "\"cache_read_input_tokens\""}, {"\"completion_tokens\"", "\"output_tokens\""}};
  char text[ANSWER_TAIL];
  bool whole = s->bytes <= ANSWER_TAIL;
  size_t length = whole ? (size_t)s->bytes : ANSWER_TAIL, at = whole ? 0 : s->bytes % ANSWER_TAIL;
  int64_t found[3];
  memcpy(text, s->tail + at, length - at);
  memcpy(text + length - at, s->tail, at);
  for (int i = 0; i < 3; i++) {
    found[i] = answer_number(text, length, NAMES[i][0]);
    if (found[i] < 0) found[i] = answer_number(text, length, NAMES[i][1]);
  }
  return (answer_counts){found[0], found[1], found[2]};
}

#endif
