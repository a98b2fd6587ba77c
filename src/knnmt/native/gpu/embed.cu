// Embeddings of tokens plus those of their positions, in one kernel. A block is a token. HALF is put before this text.
// tokens (rows,), positions (rows,) or (1,), from one to the next position_stride numbers apart; table (words, dim),
// of_positions (places, dim), found (rows, dim). A token or position that is in no table takes its last.

#include "stored.h"

extern "C" __global__ void knnmt_embed(const long long* tokens, const long long* positions, int position_stride,
                                       const Number* table, int words, const Number* of_positions, int places, int dim,
                                       Number* found) {
    const int row = blockIdx.x;
    const long long token = tokens[row], position = positions[(long long)row * position_stride];
    const Number* one = table + (token >= 0 && token < words ? token : words - 1) * dim;
    const Number* two = of_positions + (position >= 0 && position < places ? position : places - 1) * dim;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) write(found + (long long)row * dim + i, read(one[i]) + read(two[i]));
}
