/* What made this object, for build_info(): said by the compiler's own macros, so true for whoever ran it and how. */
#ifndef K07_COMPILED_H
#define K07_COMPILED_H

#include <stdlib.h> /* for __GLIBC__ */

#define K07_TEXT_OF(x) #x
#define K07_TEXT(x) K07_TEXT_OF(x)

#if defined(__clang__)
#define K07_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define K07_COMPILER "gcc " __VERSION__
#else
#define K07_COMPILER "unknown"
#endif

#if defined(__x86_64__)
#define K07_MACHINE "x86_64"
#elif defined(__aarch64__)
#define K07_MACHINE "aarch64"
#else
#define K07_MACHINE "other"
#endif

#if defined(__GLIBC__)
#define K07_LIBC " glibc-" K07_TEXT(__GLIBC__) "." K07_TEXT(__GLIBC_MINOR__)
#elif defined(__linux__)
#define K07_LIBC " musl" /* which has no macro of its own */
#elif defined(__APPLE__)
#define K07_LIBC " macos"
#else
#define K07_LIBC ""
#endif

/* More than the base instruction set for everything, as by CFLAGS=-march=native: such a build may not run elsewhere */
#if defined(__AVX512F__)
#define K07_BASE " avx512f"
#elif defined(__AVX2__)
#define K07_BASE " avx2"
#elif defined(__SSE4_2__)
#define K07_BASE " sse4.2"
#elif defined(__ARM_FEATURE_CRC32)
#define K07_BASE " crc"
#else
#define K07_BASE ""
#endif

#if defined(__OPTIMIZE__)
#define K07_OPTIMIZED " optimized"
#else
#define K07_OPTIMIZED " not-optimized"
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define K07_SANITIZED " sanitized"
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define K07_SANITIZED " sanitized"
#endif
#ifndef K07_SANITIZED
#define K07_SANITIZED ""
#endif

/* Words with blanks between: machine, C library, more than the base, "optimized" or "not-optimized", "sanitized" */
#define K07_COMPILED_FOR K07_MACHINE K07_LIBC K07_BASE K07_OPTIMIZED K07_SANITIZED

#endif
