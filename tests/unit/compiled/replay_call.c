/* Calls one function of a library with recorded arrays, and writes its result and the arrays after the call.
 *
 * replay_call LIBRARY SYMBOL POLICY INPUT OUTPUT
 * The input has words of 8 bytes: the number of arrays; for each its size in bytes and its contents; the number of words
 * of the table and the words; the number of arguments and the arguments. Words of tables and arguments are pairs: what
 * the value is (0 a number, 1 the index of an array, 2 the table, 3 the policy), and the value.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *input;
static void *arrays[64];
static int64_t sizes[64];
static int64_t *table;
static void *policy;

static int64_t word(void) {
  int64_t value;
  if (fread(&value, sizeof value, 1, input) != 1) exit(3);
  return value;
}

static int64_t *words(void) {
  int64_t count = word(), *values = malloc((count + 1) * sizeof *values);
  for (int64_t index = 0; index < count; index++) {
    int64_t kind = word(), value = word();
    values[index] = kind == 1   ? (int64_t)(intptr_t)arrays[value]
                    : kind == 2 ? (int64_t)(intptr_t)table
                    : kind == 3 ? (int64_t)(intptr_t)policy
                                : value;
  }
  return values;
}

int main(int count, char **given) {
  void *library = count == 6 ? dlopen(given[1], RTLD_NOW) : NULL;
  if (!library) return fprintf(stderr, "%s\n", count == 6 ? dlerror() : "five arguments, please"), 2;
  int64_t (*function)(const int64_t *) = (int64_t (*)(const int64_t *))dlsym(library, given[2]);
  policy = dlsym(library, given[3]);
  input = fopen(given[4], "rb");
  FILE *output = fopen(given[5], "wb");
  if (!function || !policy || !input || !output) return fprintf(stderr, "no such symbol or file\n"), 2;
  int64_t number = word();
  for (int64_t index = 0; index < number; index++) {
    sizes[index] = word();
    arrays[index] = aligned_alloc(64, (sizes[index] + 64) / 64 * 64);
    if (sizes[index] && fread(arrays[index], sizes[index], 1, input) != 1) return 3;
  }
  table = words();
  int64_t result = function(words());
  fwrite(&result, sizeof result, 1, output);
  for (int64_t index = 0; index < number; index++) fwrite(arrays[index], 1, sizes[index], output);
  return fclose(output);
}
