/* The part of Envoy's dynamic-module interface that the module uses, for Envoy 1.40 (interface v0.2.0).
 *
 * Envoy promises this interface for one release only. `penstock route` therefore compares the release of the Envoy
 * program before it configures the module. Facts: source/extensions/dynamic_modules/abi/abi.h of that release.
 */
#ifndef PENSTOCK_ENVOY_ABI_H
#define PENSTOCK_ENVOY_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENVOY_INTERFACE "v0.2.0"
#define ENVOY(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name
#define ON_FILTER(name) envoy_dynamic_module_on_http_filter_##name

/* Bytes of Envoy's or of the module's: both have the same layout. */
typedef struct { const char *ptr; size_t length; } envoy_bytes;
typedef struct { const char *key; size_t key_length; const char *value; size_t value_length; } envoy_header;
typedef void *envoy_filter, *envoy_scheduler;

enum { REQUEST_HEADERS = 0, RESPONSE_HEADERS = 2 };
enum { RECEIVED_REQUEST_BODY = 0, RECEIVED_RESPONSE_BODY = 2 };
enum { HEADERS_CONTINUE = 0, HEADERS_STOP = 1 };
enum { BODY_CONTINUE = 0, BODY_STOP_AND_BUFFER = 1, BODY_STOP = 3 };
enum { LOG_WARNING = 3 };
enum { ATTRIBUTE_RESPONSE_FLAGS = 17, ATTRIBUTE_UPSTREAM_ADDRESS = 41 };

size_t ENVOY(http_get_body_chunks_size)(envoy_filter, int body);
bool ENVOY(http_get_body_chunks)(envoy_filter, int body, envoy_bytes *chunks);
bool ENVOY(http_get_header)(envoy_filter, int of, envoy_bytes key, envoy_bytes *value, size_t index, size_t *count);
void ENVOY(http_set_buffer_limit)(envoy_filter, uint64_t bytes);
size_t ENVOY(http_get_headers_size)(envoy_filter, int of);
bool ENVOY(http_get_headers)(envoy_filter, int of, envoy_header *headers);
bool ENVOY(http_set_header)(envoy_filter, int of, envoy_bytes key, envoy_bytes value);
void ENVOY(http_send_response)(envoy_filter, uint32_t status, envoy_header *headers, size_t count, envoy_bytes body,
                               envoy_bytes details);
bool ENVOY(http_set_upstream_override_host)(envoy_filter, envoy_bytes address, bool strict); /* false: not an address */
void ENVOY(http_clear_route_cache)(envoy_filter);
bool ENVOY(http_filter_get_attribute_int)(envoy_filter, int attribute, uint64_t *value);
bool ENVOY(http_filter_get_attribute_string)(envoy_filter, int attribute, envoy_bytes *value);
uint32_t ENVOY(http_filter_get_worker_index)(envoy_filter);
envoy_scheduler ENVOY(http_filter_scheduler_new)(envoy_filter);
void ENVOY(http_filter_scheduler_commit)(envoy_scheduler, uint64_t event); /* from any thread */
void ENVOY(http_filter_scheduler_delete)(envoy_scheduler);
void ENVOY(http_filter_continue_decoding)(envoy_filter);
void ENVOY(log)(int level, envoy_bytes message);

#endif
