// Stops C++ exceptions at the edge of a plugin: one may not leave it, since the host is not written in C++.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Put every function of every table through it:
//
//     static const llmrt_buffer_vt buffer_vt = {
//         sizeof(llmrt_buffer_vt), 0,
//         llmrt::guard<destroy>, llmrt::guard<set>, llmrt::guard<get>, llmrt::guard<fill>,
//         nullptr, nullptr, nullptr,
//     };
//
// The guarded function answers LLMRT_STATUS_INTERNAL with LLMRT_SCOPE_PLUGIN and the exception's what(): the host then
// never calls the plugin again and places the work elsewhere. A function without a status (destroy, close, shutdown,
// alloc_size, accepts, host_ptr …) answers nothing, 0 or NULL, and the next guarded call that has a status reports what
// happened. `throw llmrt::failure(status, scope, text)` is for failures with a meaning: it becomes that answer.
//
// C++17; needs nothing but plugin.h and the standard library.

#ifndef LLMRT_GUARD_HPP
#define LLMRT_GUARD_HPP

#include "plugin.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace llmrt {

// An answer with a status and a scope of its own; out of memory with bytes, for example.
class failure : public std::runtime_error {
public:
    failure(int32_t status, uint32_t scope, const std::string &text)
        : std::runtime_error(text), status(status), scope(scope) {}

    int32_t status;
    uint32_t scope;
    int32_t vendor_code = 0;
    uint32_t node_index = LLMRT_NO_TENSOR;
    uint64_t bytes_requested = 0;
    uint64_t bytes_available = 0;
};

namespace detail {

// The text of an exception in a function that returns no status. No allocation: memory may have run out.
struct unreported {
    std::mutex lock;
    std::atomic<bool> is_set{ false }; // once it is, `text` stays
    char text[sizeof(llmrt_error::msg)] = {};

    void set(const char *what) noexcept {
        const std::lock_guard<std::mutex> holding(lock);
        if (is_set) return;
        std::strncpy(text, what, sizeof text - 1);
        is_set = true;
    }
};

inline unreported &earlier() noexcept {
    static unreported instance;
    return instance;
}

inline int32_t report(llmrt_error *err, int32_t status, uint32_t scope, const char *text) noexcept {
    if (err != nullptr) {
        err->code = status;
        err->scope = scope;
        err->vendor_code = 0;
        err->node_index = LLMRT_NO_TENSOR;
        err->bytes_requested = err->bytes_available = 0;
        err->msg_len = static_cast<uint32_t>(std::strlen(text));
        if (err->msg_len > sizeof err->msg) err->msg_len = sizeof err->msg;
        std::memcpy(err->msg, text, err->msg_len);
    }
    return status;
}

inline int32_t report(llmrt_error *err, const failure &e) noexcept {
    const int32_t status = report(err, e.status, e.scope, e.what());
    if (err != nullptr) {
        err->vendor_code = e.vendor_code;
        err->node_index = e.node_index;
        err->bytes_requested = e.bytes_requested;
        err->bytes_available = e.bytes_available;
    }
    return status;
}

inline int32_t broken(llmrt_error *err, const char *text) noexcept {
    return report(err, LLMRT_STATUS_INTERNAL, LLMRT_SCOPE_PLUGIN, text);
}

// The caller's error, which is the last argument where there is one.
inline llmrt_error *error_of() noexcept { return nullptr; }
inline llmrt_error *error_of(llmrt_error *last) noexcept { return last; }
template <class T> llmrt_error *error_of(T &&) noexcept { return nullptr; }
template <class T, class U, class... More> llmrt_error *error_of(T &&, U &&next, More &&...more) noexcept {
    return error_of(std::forward<U>(next), std::forward<More>(more)...);
}

template <class... Args>
constexpr bool has_error = std::disjunction_v<std::is_same<Args, llmrt_error *>...>;

template <auto Function> struct guarded;

template <class Answer, class... Args, Answer (*Function)(Args...)> struct guarded<Function> {
    // Functions with a status and an error.
    static constexpr bool reports = std::is_same_v<Answer, int32_t> && has_error<Args...>;

    static Answer call(Args... args) noexcept {
        if constexpr (reports) {
            llmrt_error *err = error_of(args...);
            if (earlier().is_set) return broken(err, earlier().text);
            try {
                return Function(args...);
            } catch (const failure &e) {
                return report(err, e);
            } catch (const std::exception &e) {
                return broken(err, e.what());
            } catch (...) {
                return broken(err, "an exception that is no std::exception");
            }
        } else {
            try {
                return Function(args...);
            } catch (const std::exception &e) {
                earlier().set(e.what());
            } catch (...) {
                earlier().set("an exception that is no std::exception");
            }
            // `infer` and `reference` of custom ops have a status and no error.
            if constexpr (std::is_same_v<Answer, int32_t>) return LLMRT_STATUS_INTERNAL;
            else if constexpr (!std::is_void_v<Answer>) return Answer{};
        }
    }
};

} // namespace detail

// The function in the form of the tables, with exceptions stopped.
template <auto Function> constexpr auto guard = &detail::guarded<Function>::call;

} // namespace llmrt

#endif // LLMRT_GUARD_HPP
