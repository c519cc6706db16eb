// What every function of the shim shares: nothing may unwind into Rust, and texts are cut to the room there is.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string>

namespace {

void copy_text(const std::string& text, char* out, size_t capacity) noexcept {
  if (out == nullptr || capacity == 0) return;
  const size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

// Nothing may unwind into Rust.
template <typename Body>
int guarded(char* message, size_t capacity, Body body) noexcept {
  try {
    body();
    return 0;
  } catch (const c10::Error& error) {
    copy_text(error.what_without_backtrace(), message, capacity);
  } catch (const std::exception& error) {
    copy_text(error.what(), message, capacity);
  } catch (...) {
    copy_text("an exception that is not a std::exception", message, capacity);
  }
  return 1;
}

}  // namespace
