/* Reads the fields of a request body that routing needs, piece by piece, without a copy of the body.
 *
 * The scan follows strings and brackets only. It finds `model`, `max_tokens`, `max_completion_tokens`, `stream` and `n`
 * among the fields of the outermost object, and hashes the bytes after the key of the prompt in blocks. Its result does
 * not depend on where the body is cut into pieces. A body that is not JSON yields no fields or wrong ones, and never a
 * fault: the engine rejects it.
 */
#ifndef PENSTOCK_BODY_SCAN_H
#define PENSTOCK_BODY_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SCAN_BLOCK_BYTES = 1024, SCAN_MAX_BLOCKS = 128, SCAN_STRIPE = 32, SCAN_TOKEN = 160 };
enum { FIELD_NONE, FIELD_MODEL, FIELD_MAX_TOKENS, FIELD_MAX_COMPLETION, FIELD_STREAM, FIELD_N, FIELD_PROMPT };
enum { IN_NOTHING, IN_LONG_STRING, IN_TOKEN_STRING };

typedef struct body_scan {
  uint64_t bytes;
  int64_t depth;
  uint8_t in, field, escape; /* escape: 1 after a backslash, 2 to 5 inside \uXXXX */
  bool is_key, begun, odd_slashes, too_long, hashing;
  uint32_t code;             /* the value of \uXXXX so far */
  uint32_t token_length;
  char token[SCAN_TOKEN];
  /* Results. */
  bool has_model, stream;
  uint32_t model_length;
  char model[SCAN_TOKEN];
  int64_t max_tokens, max_completion, choices;
  uint32_t blocks;
  uint64_t chain[SCAN_MAX_BLOCKS];
  /* The block that is being hashed. */
  uint64_t lane[4];
  uint32_t in_block, held;
  uint8_t stripe[SCAN_STRIPE];
} body_scan;

static const uint64_t SCAN_PRIME = 0x9E3779B97F4A7C15ull;

static inline uint64_t scan_mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93ull;
  h ^= h >> 29;
  h *= SCAN_PRIME;
  return h ^ (h >> 32);
}

static inline uint64_t scan_hash(const char *text, size_t length) {
  uint64_t h = length + 1;
  for (size_t i = 0; i < length; i++) h = (h ^ (uint8_t)text[i]) * 0x100000001B3ull;
  return scan_mix(h);
}

static inline void scan_stripes(body_scan *s, const uint8_t *p, size_t count) {
  uint64_t a = s->lane[0], b = s->lane[1], c = s->lane[2], d = s->lane[3], w[4];
  for (; count; count--, p += SCAN_STRIPE) {
    memcpy(w, p, SCAN_STRIPE);
    a = (a ^ w[0]) * SCAN_PRIME, a ^= a >> 29;
    b = (b ^ w[1]) * SCAN_PRIME, b ^= b >> 31;
    c = (c ^ w[2]) * SCAN_PRIME, c ^= c >> 30;
    d = (d ^ w[3]) * SCAN_PRIME, d ^= d >> 28;
  }
  s->lane[0] = a, s->lane[1] = b, s->lane[2] = c, s->lane[3] = d;
}

static inline void scan_end_block(body_scan *s) {
  uint64_t before = s->blocks ? s->chain[s->blocks - 1] : SCAN_PRIME;
  uint64_t h = scan_mix(s->lane[0]) ^ scan_mix(s->lane[1] + 1) ^ scan_mix(s->lane[2] + 2) ^ scan_mix(s->lane[3] + 3);
  s->chain[s->blocks++] = scan_mix(before * 3 + h);
  s->in_block = 0;
  memset(s->lane, 0, sizeof s->lane);
  if (s->blocks == SCAN_MAX_BLOCKS) s->hashing = false;
}

/* Hashes more bytes of the prompt. */
static inline void scan_prompt(body_scan *s, const uint8_t *p, size_t n) {
  while (n && s->hashing) {
    size_t left = SCAN_BLOCK_BYTES - s->in_block - s->held, take;
    if (s->held || n < SCAN_STRIPE) {
      take = SCAN_STRIPE - s->held < n ? SCAN_STRIPE - s->held : n;
      memcpy(s->stripe + s->held, p, take);
      s->held += (uint32_t)take;
      if (s->held == SCAN_STRIPE) scan_stripes(s, s->stripe, 1), s->held = 0, s->in_block += SCAN_STRIPE;
    } else {
      take = (left < n ? left : n) / SCAN_STRIPE * SCAN_STRIPE;
      scan_stripes(s, p, take / SCAN_STRIPE);
      s->in_block += (uint32_t)take;
    }
    if (s->in_block == SCAN_BLOCK_BYTES) scan_end_block(s);
    p += take, n -= take;
  }
}

static inline bool scan_is(const body_scan *s, const char *word) {
  return !s->too_long && s->token_length == strlen(word) && !memcmp(s->token, word, s->token_length);
}

/* Returns the integer in the token, or -1 if it is none below 2^31. */
static inline int64_t scan_integer(const body_scan *s) {
  int64_t value = 0;
  if (s->too_long || !s->token_length || s->token_length > 10) return -1;
  for (uint32_t i = 0; i < s->token_length; i++) {
    if (s->token[i] < '0' || s->token[i] > '9') return -1;
    value = value * 10 + (s->token[i] - '0');
  }
  return value < (INT64_C(1) << 31) ? value : -1;
}

static inline uint8_t scan_field(const body_scan *s) {
  static const struct { const char *name; uint8_t field; } FIELDS[] = {
      {"model", FIELD_MODEL}, {"max_tokens", FIELD_MAX_TOKENS}, {"max_completion_tokens", FIELD_MAX_COMPLETION},
      {"stream", FIELD_STREAM}, {"n", FIELD_N}, {"messages", FIELD_PROMPT}, {"prompt", FIELD_PROMPT},
      {"input", FIELD_PROMPT}};
  for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
    if (scan_is(s, FIELDS[i].name)) return FIELDS[i].field;
  return FIELD_NONE;
}

/* Ends a value of the outermost object that is neither string, object nor list. As in JSON, the last one counts. */
static inline void scan_end_scalar(body_scan *s) {
  if (s->field == FIELD_MAX_TOKENS) s->max_tokens = scan_integer(s);
  if (s->field == FIELD_MAX_COMPLETION) s->max_completion = scan_integer(s);
  if (s->field == FIELD_N) s->choices = scan_integer(s);
  if (s->field == FIELD_STREAM) s->stream = scan_is(s, "true");
  s->field = FIELD_NONE, s->token_length = 0, s->too_long = false;
}

static inline void scan_put(body_scan *s, uint32_t byte) {
  if (s->token_length < SCAN_TOKEN) s->token[s->token_length++] = (char)byte;
  else s->too_long = true;
}

static inline void scan_put_code(body_scan *s, uint32_t code) {
  if (code < 0x80) { scan_put(s, code); return; }
  if (code < 0x800) scan_put(s, 0xC0 | code >> 6);
  else scan_put(s, 0xE0 | code >> 12), scan_put(s, 0x80 | (code >> 6 & 63));
  scan_put(s, 0x80 | (code & 63));
}

/* Reads a byte of a string that is kept: a key, or the model. Returns true if the string has ended. */
static inline bool scan_token_byte(body_scan *s, uint8_t byte) {
  if (s->escape > 1) {
    uint32_t digit = byte >= '0' && byte <= '9' ? byte - '0' : (byte | 32) >= 'a' && (byte | 32) <= 'f' ? (byte | 32) - 'a' + 10 : 0;
    s->code = s->code << 4 | digit;
    if (++s->escape == 6) scan_put_code(s, s->code & 0xFFFF), s->escape = 0;
  } else if (s->escape) {
    s->escape = byte == 'u' ? 2 : 0, s->code = 0;
    if (byte != 'u') scan_put(s, byte == 'n' ? '\n' : byte == 't' ? '\t' : byte == 'r' ? '\r' : byte);
  } else if (byte == '\\') {
    s->escape = 1;
  } else if (byte == '"') {
    return true;
  } else {
    scan_put(s, byte);
  }
  return false;
}

static inline void scan_end_token(body_scan *s) {
  s->in = IN_NOTHING;
  if (s->is_key) {
    s->field = scan_field(s);
  } else { /* the model, whose name fits: no fleet has a longer one */
    s->has_model = true;
    s->model_length = s->too_long ? 0 : s->token_length;
    memcpy(s->model, s->token, s->model_length);
    s->field = FIELD_NONE;
  }
  s->token_length = 0, s->too_long = false;
}

/* Skips a string that is not kept. Returns the byte after its end, or `end` if it goes on in the next piece. */
static inline const uint8_t *scan_skip_string(body_scan *s, const uint8_t *p, const uint8_t *end) {
  while (p < end) {
    const uint8_t *quote = memchr(p, '"', (size_t)(end - p)), *stop = quote ? quote : end, *q = stop;
    while (q > p && q[-1] == '\\') q--;
    bool odd = ((stop - q) & 1) ^ (q == p && s->odd_slashes);
    s->odd_slashes = quote ? false : odd;
    if (!quote) return end;
    p = quote + 1;
    if (!odd) {
      s->in = IN_NOTHING;
      return p;
    }
  }
  return end;
}

static inline void scan_begin_string(body_scan *s) {
  bool top = s->depth == 1;
  s->is_key = top && s->is_key;
  s->in = s->is_key || (top && s->field == FIELD_MODEL) ? IN_TOKEN_STRING : IN_LONG_STRING;
  s->token_length = 0, s->too_long = false, s->escape = 0, s->odd_slashes = false;
}

static inline void scan_structure(body_scan *s, uint8_t byte) {
  bool top = s->depth == 1;
  if (byte == '"') {
    if (s->depth > 0) scan_begin_string(s);
  } else if (byte == '{' || byte == '[') {
    if (!s->depth) s->depth = !s->begun && byte == '{' ? 1 : -1, s->is_key = true; /* -1: not an object, so not read */
    else if (s->depth > 0) s->depth++, s->is_key = false;
    s->begun = true;
  } else if (byte == '}' || byte == ']') {
    if (top) scan_end_scalar(s);
    if (s->depth > 0 && !--s->depth) s->depth = -1;
  } else if (byte == ',' && top) {
    scan_end_scalar(s);
    s->is_key = true;
  } else if (byte == ':' && top) {
    s->is_key = false;
  } else if (byte != ' ' && byte != '\n' && byte != '\r' && byte != '\t') {
    if (!s->depth) s->depth = -1;
    if (top && s->field) scan_put(s, byte);
  }
}

/* Scans the next piece of a body. A scan begins as zeros. */
static inline void scan_piece(body_scan *s, const char *bytes, size_t length) {
  const uint8_t *p = (const uint8_t *)bytes, *end = p + length;
  s->bytes += length;
  if (s->hashing) scan_prompt(s, p, length);
  while (p < end && s->depth >= 0) {
    if (s->in == IN_LONG_STRING) {
      p = scan_skip_string(s, p, end);
    } else if (s->in == IN_TOKEN_STRING) {
      if (scan_token_byte(s, *p++)) {
        scan_end_token(s);
        if (s->field == FIELD_PROMPT && s->is_key && !s->hashing && !s->blocks && !s->in_block && !s->held) {
          s->hashing = true;
          scan_prompt(s, p, (size_t)(end - p));
        }
      }
    } else {
      scan_structure(s, *p++);
    }
  }
}

/* Returns the client's limit of output tokens, or 0 if it has set none. */
static inline int64_t scan_limit(const body_scan *s) {
  return s->max_completion > 0 ? s->max_completion : s->max_tokens > 0 ? s->max_tokens : 0;
}

/* Writes the key of each block for a model, and returns the number of blocks. Keys are positive. */
static inline uint32_t scan_keys(const body_scan *s, uint64_t model, int64_t *keys) {
  for (uint32_t i = 0; i < s->blocks; i++) keys[i] = (int64_t)(scan_mix(s->chain[i] ^ model) >> 1 | 1);
  return s->blocks;
}

#endif
