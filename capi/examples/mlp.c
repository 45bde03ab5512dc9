// An MLP from C: no Rust is needed to build this against the shared library.
//   cc -std=c99 -Icapi/include capi/examples/mlp.c -Ltarget/release -lcusync_c -Wl,-rpath,target/release -lm -o mlp && ./mlp
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "cusync/pipeline.h"

enum { M = 24, H = 64, I = 128 };
static char const spec[] =
    "Pipeline(name: \"mlp\", dims: { \"M\": 8, \"H\": 64, \"I\": 128 }, stages: ["
    "  Gemm(name: \"up\",   a: \"X(M,H)\", b: \"W1(H,I)\", out: \"Y(M,I)\", epilogue: Relu),"
    "  Gemm(name: \"down\", a: \"Y(M,I)\", b: \"W2(I,H)\", out: \"Z(M,H)\"),"
    "])";

static void check(int32_t status) {
  if (status == CUSYNC_PIPELINE_OK) return;
  fprintf(stderr, "%s\n", cusync_pipeline_error());
  exit(1);
}

int main(int argc, char** argv) {
  if (cusync_pipeline_abi() != CUSYNC_PIPELINE_ABI) {
    fprintf(stderr, "libcusync_c %s has another ABI than this program\n", cusync_pipeline_version());
    return 1;
  }
  static float x[M * H], w1[H * I], w2[I * H], y[I], z[M * H];
  for (int i = 0; i < M * H; ++i) x[i] = (float)(i % 7 - 3) / 4;
  for (int i = 0; i < H * I; ++i) w1[i] = (float)(i % 5 - 2) / 16;
  for (int i = 0; i < I * H; ++i) w2[i] = (float)(i % 3 - 1) / 16;

  cusync_dim const dims[] = {{"M", M}};
  cusync_pipeline* pipeline = NULL;
  check(cusync_pipeline_open(spec, dims, 1, argc > 1 ? argv[1] : NULL, 0, &pipeline));
  check(cusync_pipeline_set_f32(pipeline, "X", x, M * H));
  check(cusync_pipeline_set_f32(pipeline, "W1", w1, H * I));
  check(cusync_pipeline_set_f32(pipeline, "W2", w2, I * H));
  double worst = 0;
  for (int run = 0; run < 3; ++run) {
    check(cusync_pipeline_run(pipeline, NULL));
    check(cusync_pipeline_read_f32(pipeline, "Z", z, M * H));
    for (int r = 0; r < M; ++r) {
      for (int i = 0; i < I; ++i) {
        y[i] = 0;
        for (int h = 0; h < H; ++h) y[i] += x[r * H + h] * w1[h * I + i];
        y[i] = y[i] > 0 ? y[i] : 0;
      }
      for (int h = 0; h < H; ++h) {
        double sum = 0;
        for (int i = 0; i < I; ++i) sum += y[i] * w2[i * H + h];
        worst = fmax(worst, fabs(sum - z[r * H + h]));
      }
    }
  }
  // Errors say how to fix them.
  if (cusync_pipeline_set_f32(pipeline, "Q", x, 1) == CUSYNC_PIPELINE_OK) return 1;
  printf("%s executor: largest error %.1e; and: %s\n", cusync_pipeline_executor(pipeline), worst, cusync_pipeline_error());
  cusync_pipeline_close(pipeline);
  return worst < 5e-3 ? 0 : 1;
}
