# The checksum of a body, CRC-32 as zlib has it, for _plain_sends.pyx and _rows.pyx.
#
# Eight bytes at a time by tables; where the processor multiplies without carries (x86-64, PCLMULQDQ),
# longer bodies sixteen bytes at a time: a remainder of 512 bits is carried along, folded to 128 and 64
# and reduced as Barrett does. The constants are those of the reflected polynomial 0xEDB88320.
#
# Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    static int has_folding(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    #define FOLD(x, k, next) _mm_xor_si128( \\
        _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next)
    #define AT(p) _mm_loadu_si128((const __m128i *)(p))

    /* Of 64 bytes or more, a multiple of 16; value is what the bytes before left. */
    __attribute__((target("sse4.1,pclmul")))
    static uint32_t folded_crc(const uint8_t *p, Py_ssize_t size, uint32_t value) {
        const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
        __m128i a = _mm_xor_si128(AT(p), _mm_cvtsi32_si128((int)value));
        __m128i b = AT(p + 16), c = AT(p + 32), d = AT(p + 48), t;
        for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
            a = FOLD(a, by_512, AT(p));
            b = FOLD(b, by_512, AT(p + 16));
            c = FOLD(c, by_512, AT(p + 32));
            d = FOLD(d, by_512, AT(p + 48));
        }
        a = FOLD(a, by_128, b);
        a = FOLD(a, by_128, c);
        a = FOLD(a, by_128, d);
        for (; size >= 16; p += 16, size -= 16)
            a = FOLD(a, by_128, AT(p));
        a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_128, 0x10));
        t = _mm_clmulepi64_si128(_mm_and_si128(a, low), by_64, 0x00);
        a = _mm_xor_si128(_mm_srli_si128(a, 4), t);
        t = _mm_clmulepi64_si128(_mm_and_si128(a, low), barrett, 0x10);
        t = _mm_clmulepi64_si128(_mm_and_si128(t, low), barrett, 0x00);
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, t), 1);
    }
    #else
    static int has_folding(void) { return 0; }
    static uint32_t folded_crc(const uint8_t *p, Py_ssize_t size, uint32_t value) {
        (void)p; (void)size;
        return value;
    }
    #endif
    """
    int has_folding() noexcept nogil
    uint32_t folded_crc(Bytes p, Py_ssize_t size, uint32_t value) noexcept nogil

cdef bint folds = has_folding()
cdef uint32_t crc_tables[8][256]

cdef void make_crc_tables() noexcept nogil:
    cdef uint32_t value
    cdef int i, j
    for i in range(256):
        value = <uint32_t>i
        for j in range(8):
            value = (value >> 1) ^ (0xEDB88320U if value & 1 else 0)
        crc_tables[0][i] = value
    for i in range(256):
        for j in range(1, 8):
            value = crc_tables[j - 1][i]
            crc_tables[j][i] = (value >> 8) ^ crc_tables[0][value & 0xFF]

make_crc_tables()

cdef uint32_t body_crc(Bytes p, Py_ssize_t size) noexcept nogil:
    """The checksum, without its sign bit."""
    cdef uint32_t value = 0xFFFFFFFFU
    cdef uint32_t low
    if size >= 64 and folds:
        value = folded_crc(p, size & ~15, value)
        p += size & ~15
        size &= 15
    while size >= 8:
        low = value ^ (p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16) | (<uint32_t>p[3] << 24))
        value = (
            crc_tables[7][low & 0xFF] ^ crc_tables[6][(low >> 8) & 0xFF]
            ^ crc_tables[5][(low >> 16) & 0xFF] ^ crc_tables[4][low >> 24]
            ^ crc_tables[3][p[4]] ^ crc_tables[2][p[5]] ^ crc_tables[1][p[6]] ^ crc_tables[0][p[7]]
        )
        p += 8
        size -= 8
    while size > 0:
        value = (value >> 8) ^ crc_tables[0][(value ^ p[0]) & 0xFF]
        p += 1
        size -= 1
    return (value ^ 0xFFFFFFFFU) & 0x7FFFFFFFU
