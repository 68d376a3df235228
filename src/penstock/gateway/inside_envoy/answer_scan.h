/* Watches an answer as it passes: bytes, the events of a stream, and the engine's counts of tokens.
 *
 * Its results do not depend on where the answer is cut into pieces. It keeps no more than the object `usage`.
 */
#ifndef PENSTOCK_ANSWER_SCAN_H
#define PENSTOCK_ANSWER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ANSWER_USAGE = 1024, ANSWER_EDGE = 6 }; /* bytes kept of `usage`; bytes of its key that may be in the last piece */

typedef struct answer_counts { int64_t prompt, cached, output; } answer_counts; /* -1: the engine wrote none */

typedef struct answer_scan {
  uint64_t bytes;
  int64_t events;
  bool after_newline, has_usage;
  uint32_t usage_length, edge_length;
  char edge[ANSWER_EDGE], usage[ANSWER_USAGE]; /* the last bytes; the bytes after the last key `usage` */
  bool has_counts;
  answer_counts counts; /* of an earlier `usage` */
} answer_scan;

static const char ANSWER_KEY[] = "\"usage\"";

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

/* Returns the length of the object that follows a key, or 0 if something else does, such as `null`. */
static inline size_t answer_object(const char *text, size_t length) {
  size_t at = 0, depth = 0;
  while (at < length && (text[at] == ':' || text[at] == ' ')) at++;
  for (; at < length; at++) {
    if (text[at] == '{') depth++;
    else if (text[at] == '}' && depth && !--depth) return at + 1;
    else if (!depth) return 0;
  }
  return depth ? at : 0;
}

/* Reads the engine's counts from the last object `usage` so far. */
static inline answer_counts answer_usage(const answer_scan *s) {
  static const char *const NAMES[3][2] = {{"\"prompt_tokens\"", "\"input_tokens\""},
      {"\"cached_tokens\"", "\"cache_read_input_tokens\""}, {"\"completion_tokens\"", "\"output_tokens\""}};
  size_t length = s->has_usage ? answer_object(s->usage, s->usage_length) : 0;
  int64_t found[3];
  for (int i = 0; i < 3; i++) {
    found[i] = answer_number(s->usage, length, NAMES[i][0]);
    if (found[i] < 0) found[i] = answer_number(s->usage, length, NAMES[i][1]);
  }
  if (s->has_counts && !length) return s->counts;
  return (answer_counts){found[0], found[1], found[2]};
}

/* Returns where the first key `usage` that ends in a piece ends, or NULL. Its begin may be in the piece before. */
static inline const char *answer_key_end(const answer_scan *s, const char *p, size_t length) {
  const size_t key = sizeof ANSWER_KEY - 1, head = length < ANSWER_EDGE ? length : ANSWER_EDGE;
  char edge[2 * ANSWER_EDGE];
  memcpy(edge, s->edge, s->edge_length);
  memcpy(edge + s->edge_length, p, head);
  const char *found = memmem(edge, s->edge_length + head, ANSWER_KEY, key);
  if (found) return p + (found + key - edge) - s->edge_length;
  found = memmem(p, length, ANSWER_KEY, key);
  return found ? found + key : NULL;
}

/* Keeps bytes that have passed: of `usage`, and the last ones. */
static inline void answer_keep(answer_scan *s, const char *p, size_t length) {
  size_t room = s->has_usage ? ANSWER_USAGE - s->usage_length : 0, take = length < room ? length : room;
  memcpy(s->usage + s->usage_length, p, take);
  s->usage_length += (uint32_t)take;
  size_t last = length < ANSWER_EDGE ? length : ANSWER_EDGE, kept = ANSWER_EDGE - last;
  kept = kept < s->edge_length ? kept : s->edge_length;
  memmove(s->edge, s->edge + s->edge_length - kept, kept);
  memcpy(s->edge + kept, p + length - last, last);
  s->edge_length = (uint32_t)(kept + last);
}

/* Watches the next piece. An answer begins as zeros. */
static inline void answer_piece(answer_scan *s, const char *p, size_t length) {
  const char *end = p + length, *from;
  s->bytes += length;
  while (p < end && (from = answer_key_end(s, p, (size_t)(end - p)))) {
    answer_keep(s, p, (size_t)(from - p));
    answer_counts before = answer_usage(s);
    if (before.prompt >= 0 || before.output >= 0) s->counts = before, s->has_counts = true;
    s->has_usage = true, s->usage_length = 0, p = from;
  }
  answer_keep(s, p, (size_t)(end - p));
}

#endif
