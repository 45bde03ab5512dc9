// SPDX-License-Identifier: MIT OR Apache-2.0
// Language models from C: a Hugging Face checkpoint in, logits or tokens out. Link with libcusync_c (capi/README.md).
//
// A model has slots. A slot holds a sequence, and slots do not influence each other. A step appends a token to each slot that
// it names. Functions return CUSYNC_PIPELINE_OK or another cusync_pipeline_status; cusync_pipeline_error() then says what is
// wrong and what to do. A model is used by one thread at a time.
#pragma once
#include "cusync/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Where a model runs; a number of at least 0 is a GPU.
enum cusync_model_place {
  CUSYNC_MODEL_BEST = -1,  ///< GPU 0 if it has kernels for all stages, else the host
  CUSYNC_MODEL_HOST = -2,
};

typedef struct cusync_model_options {
  uint32_t slots;         ///< sequences at once; 0: one
  uint32_t context;       ///< tokens of a sequence; 0: as many as the model was trained for, up to 4096
  int32_t place;          ///< enum cusync_model_place, or the number of a GPU
  uint32_t cache_tokens;  ///< tokens that caches have room for, of all sequences together; 0: a whole context for each slot
} cusync_model_options;

/// What a step does with a sequence.
typedef struct cusync_model_next {
  uint32_t slot;
  int32_t token;      ///< to append; negative: the token that the last step drew for this slot
  float temperature;  ///< divides logits before the next token is drawn; 0: the most likely token
  float top_p;        ///< draw from the most likely tokens that together have this probability; 1: all
  uint32_t top_k;     ///< draw from this many of the most likely tokens; 0: all
  uint32_t seed;      ///< of the draw, which also depends on the sequence's length
} cusync_model_next;

typedef struct cusync_model cusync_model;

/// Opens the checkpoint in a folder. Everything is checked before weights are loaded.
int32_t cusync_model_open(const char* folder, const cusync_model_options* options, cusync_model** out);
/// Number of tokens in the vocabulary, and of a row of logits; 0 for NULL.
size_t cusync_model_vocabulary(const cusync_model* model);
/// Pages that no sequence has; 0 for NULL. A sequence takes a page for each 64 tokens as it grows; without a free one,
/// functions that append to it return CUSYNC_PIPELINE_FAILED, and nothing has changed.
size_t cusync_model_free_pages(const cusync_model* model);
/// Appends tokens to the sequence in a slot, and computes no logits. Tokens of steps in flight are dropped.
int32_t cusync_model_append(cusync_model* model, uint32_t slot, const uint32_t* tokens, size_t count);
/// Appends a token to each of `count` slots, and writes the logits of their next tokens: `count` rows of the vocabulary.
int32_t cusync_model_step(cusync_model* model, const uint32_t* slots, const uint32_t* tokens, size_t count, float* logits);
/// Queues a step that draws tokens. Two may be in flight on a GPU and one on the host, so that a GPU has the next step before
/// the tokens of the last one are read.
int32_t cusync_model_queue(cusync_model* model, const cusync_model_next* next, size_t count);
/// Waits for the oldest step in flight, and writes the tokens that it drew, in the order of its `count` slots.
int32_t cusync_model_drawn(cusync_model* model, uint32_t* tokens, size_t count);
/// Forgets the sequence in a slot.
int32_t cusync_model_clear(cusync_model* model, uint32_t slot);
/// Frees the model; NULL is ignored. No step may be in flight.
void cusync_model_close(cusync_model* model);

#ifdef __cplusplus
}
#endif
