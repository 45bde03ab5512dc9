/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two sequences of a language model, extended side by side: ./generate DIR [cpu] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cusync/model.h"

static void check(int32_t status) {
  if (status == CUSYNC_PIPELINE_OK) return;
  fprintf(stderr, "error: %s\n", cusync_pipeline_error());
  exit(1);
}

int main(int argc, char** argv) {
  /* Each sequence has up to 128 tokens, and both together have pages for 192. */
  cusync_model_options options = {2, 128, CUSYNC_MODEL_BEST, 192};
  cusync_model_next next[2];
  cusync_model* model = NULL;
  uint32_t const first[] = {72, 105}, other[] = {66, 121, 101}, slots[] = {0, 1};
  uint32_t tokens[2];
  int step, s;
  if (argc < 2) return 2;
  if (argc > 2 && strcmp(argv[2], "cpu") == 0) options.place = CUSYNC_MODEL_HOST;
  check(cusync_model_open(argv[1], &options, &model));
  check(cusync_model_append(model, 0, first, 1));
  check(cusync_model_append(model, 1, other, 2));
  /* The first step appends the last token of each prompt, the others what the step before has drawn. */
  for (step = 0; step < 8; ++step) {
    for (s = 0; s < 2; ++s) {
      cusync_model_next const one = {slots[s], step ? -1 : (int32_t)(s ? other[2] : first[1]), 0.7f, 0.95f, 40, 1};
      next[s] = one;
    }
    check(cusync_model_queue(model, next, 2));
    check(cusync_model_drawn(model, tokens, 2));
    printf("%u %u\n", tokens[0], tokens[1]);
  }
  /* An engine that chooses tokens itself asks for logits. */
  {
    float* const logits = malloc(2 * cusync_model_vocabulary(model) * sizeof(float));
    check(cusync_model_step(model, slots, tokens, 2, logits));
    printf("logits of token 0: %f and %f\n", logits[0], logits[cusync_model_vocabulary(model)]);
    free(logits);
  }
  cusync_model_close(model);
  return 0;
}
