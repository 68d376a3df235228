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

static table *open_table(const char *folder, int workers, int64_t generation) {
  table *t = calloc(1, sizeof *t);
  t->sizes[0] = sizeof *t->header;
  char *base = map_file(folder, "module", generation, true, &t->sizes[0]);
  const penstock_module_header *h = t->header = (const penstock_module_header *)base;
  if (!h || h->magic != PENSTOCK_MODULE_MAGIC || h->total_bytes > (int64_t)t->sizes[0] || h->endpoints < 1) goto failed;
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
  if (t->reports && t->counts && h->workers == workers) return t;
failed:
  close_table(t);
  return NULL;
}

#endif
