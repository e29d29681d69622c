// Convolutions in one, two and three dims, the columns under their windows, and the ways back: a thread per number.
#include "number.cuh"

// Up to three dims of space (those that are not there have one element), channels and batches of them.
struct Image {
    u64 address;
    i64 n[3], nb[3], channels, nb_channel, nb_batch, type;
};

// `size` taps, `dilation` apart, that move on by `stride` over a dim with `pad` elements more at both ends.
struct Window {
    i64 size, stride, pad, dilation;
};

// Where number n of an image is: dims of space, channel, batch.
struct Spot {
    i64 at[3], channel, batch;
};
DEVICE Spot spot_of(i64 n, const Image &image) {
    Spot spot;
    for (int d = 0; d < 3; d++) {
        spot.at[d] = n % image.n[d];
        n /= image.n[d];
    }
    spot.channel = n % image.channels;
    spot.batch = n / image.channels;
    return spot;
}
DEVICE u64 address_of(const Image &image, const Spot &spot) {
    u64 address = image.address + spot.channel * image.nb_channel + spot.batch * image.nb_batch;
    for (int d = 0; d < 3; d++) address += spot.at[d] * image.nb[d];
    return address;
}

// The element under a tap at a position; -1: in the padding.
DEVICE i64 under(const Window &w, i64 position, i64 tap, i64 n) {
    i64 i = position * w.stride + tap * w.dilation - w.pad;
    return i < n ? i : -1;
}

// kernel: without gaps, [taps of each dim, c_in, c_out].
struct Convolution {
    Image x, y;
    Window windows[3];
    u64 kernel;
    i64 kernel_type, kernel_bytes, c_in, n;
    u32 is_depthwise;
};

KERNEL(convolution, Convolution, 128) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= p.n) return;
    Spot y = spot_of(n, p.y);
    i64 n_taps = p.windows[0].size * p.windows[1].size * p.windows[2].size;
    u64 kernel = p.kernel + y.channel * p.c_in * n_taps * p.kernel_bytes;
    u64 x = p.x.address + y.batch * p.x.nb_batch + (p.is_depthwise ? y.channel : 0) * p.x.nb_channel;
    float sum = 0.0f;
    for (i64 c = 0; c < p.c_in; c++, x += p.x.nb_channel) {
        for (int t2 = 0; t2 < p.windows[2].size; t2++) {
            i64 i2 = under(p.windows[2], y.at[2], t2, p.x.n[2]);
            for (int t1 = 0; t1 < p.windows[1].size; t1++) {
                i64 i1 = under(p.windows[1], y.at[1], t1, p.x.n[1]);
                u64 row = x + i1 * p.x.nb[1] + i2 * p.x.nb[2];
                for (int t0 = 0; t0 < p.windows[0].size; t0++, kernel += p.kernel_bytes) {
                    i64 i0 = under(p.windows[0], y.at[0], t0, p.x.n[0]);
                    if ((i0 | i1 | i2) < 0) continue;
                    float v = at<const float>(row + i0 * p.x.nb[0])[0];
                    sum += v * load_number(kernel, p.kernel_type);
                }
            }
        }
    }
    at<float>(address_of(p.y, y))[0] = sum;
}

// A row of y has the taps of the first channel, then those of the next; rows are positions, then batches.
struct Columns {
    Image x;
    Tensor y;
    Window windows[3];
    i64 positions[3];
};

KERNEL(im2col, Columns, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    u64 y = address_of(p.y, index_of(n, p.y.ne));
    i64 i[3], tap = n % p.y.ne[0], position = n / p.y.ne[0];
    bool is_inside = true;
    for (int d = 0; d < 3; d++) {
        i[d] = under(p.windows[d], position % p.positions[d], tap % p.windows[d].size, p.x.n[d]);
        is_inside = is_inside && i[d] >= 0;
        tap /= p.windows[d].size;
        position /= p.positions[d];
    }
    float v = 0.0f;
    if (is_inside) v = load_number(address_of(p.x, Spot{{i[0], i[1], i[2]}, tap, position}), p.x.type);
    store_number(y, p.y.type, v);
}

// x [taps · channels, n] as the signal y that its columns add up to, `stride` apart, `pad` cut off at both ends.
struct Fold {
    Tensor x, y;
    i64 stride, pad;
};

KERNEL(col2im_1d, Fold, 256) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= n_elements(p.y)) return;
    i64 taps = p.x.ne[0] / p.y.ne[1], place = n % p.y.ne[0], channel = n / p.y.ne[0], whole = place + p.pad;
    i64 first = whole < taps ? 0 : (whole - taps) / p.stride + 1;
    float sum = 0.0f;
    for (i64 i = first; i < p.x.ne[1] && i * p.stride <= whole; i++)
        sum += load_number(address_of(p.x, channel * taps + whole - i * p.stride, i, 0, 0), p.x.type);
    store_number(address_of(p.y, place, channel, 0, 0), p.y.type, sum);
}

// Each element of x leaves its multiple of the kernel [kw, kh, c_out, c_in], `stride` apart.
struct Transposed {
    Image x, y;
    u64 kernel;
    i64 kernel_type, kernel_bytes, taps[2], stride[2], n;
};

KERNEL(conv_transpose, Transposed, 128) {
    i64 n = BLOCK_X * THREADS + THREAD;
    if (n >= p.n) return;
    Spot y = spot_of(n, p.y);
    i64 first[2];
    for (int d = 0; d < 2; d++) first[d] = y.at[d] < p.taps[d] ? 0 : (y.at[d] - p.taps[d]) / p.stride[d] + 1;
    u64 x = p.x.address + y.batch * p.x.nb_batch;
    float sum = 0.0f;
    for (i64 c = 0; c < p.x.channels; c++, x += p.x.nb_channel) {
        i64 taps = (c * p.y.channels + y.channel) * p.taps[1] + y.at[1];
        for (i64 i1 = first[1]; i1 < p.x.n[1] && i1 * p.stride[1] <= y.at[1]; i1++) {
            i64 tap = (taps - i1 * p.stride[1]) * p.taps[0] + y.at[0] - first[0] * p.stride[0];
            u64 row = x + i1 * p.x.nb[1];
            for (i64 i0 = first[0]; i0 < p.x.n[0] && i0 * p.stride[0] <= y.at[0]; i0++, tap -= p.stride[0])
                sum += at<const float>(row + i0 * p.x.nb[0])[0] *
                       load_number(p.kernel + tap * p.kernel_bytes, p.kernel_type);
        }
    }
    at<float>(address_of(p.y, y))[0] = sum;
}
