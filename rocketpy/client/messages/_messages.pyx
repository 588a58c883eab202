# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled decoder of pulled records into messages, in one pass.

It decodes a pull whose records are all fast-path eligible: version 1, IPv4 hosts, not compressed, of
the queue's topic, and whole. Of each record it reads body, offset and number of deliveries, and
keeps the rest as bytes. `rocketpy.proto.record.message` decodes every other pull.
`rocketpy.client.messages.compiled_decoder` loads it.

Every read lies between a position and an end that were compared before; lengths are `Py_ssize_t`,
and a length is compared with the rest of the body before it is added to anything.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from rocketpy.proto.record.record import FIXED_BYTES, HOST_FLAGS, MAGIC_V1, MIN_RECORD_BYTES
from rocketpy.proto.record.sys_flag import COMPRESSED

cdef extern from *:
    """
    #ifndef ROCKETPY_SOURCES
    #define ROCKETPY_SOURCES ""
    #endif
    """
    const char* ROCKETPY_SOURCES

SOURCES = <bytes>ROCKETPY_SOURCES  # `rocketpy.compiled_module` compares it with those beside it

cdef extern from "Python.h":
    object PyType_GenericAlloc(type of, Py_ssize_t items)
    int PyObject_SetAttr(object of, object name, object value) except -1

ctypedef const uint8_t* Bytes

cdef enum:
    HEAD_BYTES = 88  # of the fixed part up to the body, with IPv4 hosts
    TAIL_BYTES = 3  # lengths of the topic and of the properties
    MAGIC_AT = 4
    QUEUE_OFFSET_AT = 20
    SYS_FLAG_AT = 36
    RETRIES_AT = 72
    BODY_SIZE_AT = 84

if (FIXED_BYTES, MIN_RECORD_BYTES) != (HEAD_BYTES + 2, HEAD_BYTES + TAIL_BYTES):
    raise ImportError("records have another layout")

cdef uint32_t MAGIC = MAGIC_V1 & 0xFFFFFFFF
cdef uint32_t NOT_PLAIN = HOST_FLAGS | COMPRESSED
cdef str BODY = "body"
cdef str OFFSET = "offset"
cdef str RETRIES = "retries"
cdef str REST = "_rest"


cdef inline uint32_t get_int(Bytes p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]

cdef inline int64_t get_long(Bytes p) noexcept:
    return <int64_t>((<uint64_t>get_int(p) << 32) | get_int(p + 4))

cdef Py_ssize_t plain_size(Bytes p, Bytes end, Bytes topic, Py_ssize_t topic_size) noexcept:
    """Return the size of the record at p, 0 when it is not eligible."""
    cdef Py_ssize_t left = end - p
    cdef int32_t size, body_size
    cdef Py_ssize_t tail_size
    # Before any field is read: a body may end inside of the fixed part.
    if left < HEAD_BYTES + TAIL_BYTES:
        return 0
    size = <int32_t>get_int(p)
    if size < HEAD_BYTES + TAIL_BYTES or size > left:
        return 0
    if get_int(p + MAGIC_AT) != MAGIC or get_int(p + SYS_FLAG_AT) & NOT_PLAIN:
        return 0
    body_size = <int32_t>get_int(p + BODY_SIZE_AT)
    # Compared before it is added to p, so that a damaged length cannot move p out of the record.
    if body_size < 0 or body_size > size - HEAD_BYTES - TAIL_BYTES:
        return 0
    tail_size = size - HEAD_BYTES - body_size  # topic and properties with their lengths
    p += HEAD_BYTES + body_size
    # A topic of another size would shift the read of the properties' length behind the record.
    if p[0] != topic_size or tail_size < TAIL_BYTES + topic_size:
        return 0
    if memcmp(p + 1, topic, topic_size) != 0:
        return 0
    p += 1 + topic_size
    # A length with its sign bit set is negative to Java: the reference refuses such a record.
    if p[0] & 0x80 or TAIL_BYTES + topic_size + ((<Py_ssize_t>p[0] << 8) | p[1]) != tail_size:
        return 0
    return size

cdef object as_message(Bytes p, Py_ssize_t size, type of, tuple shared):
    """Return the message of a checked record."""
    cdef Py_ssize_t body_size = get_int(p + BODY_SIZE_AT)
    cdef object rest = PyBytes_FromStringAndSize(NULL, size - body_size)
    cdef char* to = PyBytes_AsString(rest)
    # Allocated without a call of `__init__`, which would decode the rest; all slots are set below.
    cdef object message = PyType_GenericAlloc(of, 0)
    memcpy(to, p, HEAD_BYTES)
    memcpy(to + HEAD_BYTES, p + HEAD_BYTES + body_size, size - HEAD_BYTES - body_size)
    PyObject_SetAttr(message, BODY, PyBytes_FromStringAndSize(<const char*>p + HEAD_BYTES, body_size))
    PyObject_SetAttr(message, OFFSET, get_long(p + QUEUE_OFFSET_AT))
    PyObject_SetAttr(message, RETRIES, <int32_t>get_int(p + RETRIES_AT))
    PyObject_SetAttr(message, REST, rest)
    for name, value in shared:
        PyObject_SetAttr(message, name, value)
    return message


def messages(bytes records, bytes topic, type of, tuple shared):
    """Return the messages of consecutive records, None when one of them is not eligible.

    Args:
        records: body of the response to a pull.
        topic: topic of the queue, at most 255 bytes.
        of: class of the messages; allocated without calling it.
        shared: names and values of attributes that all messages share.
    """
    cdef Bytes p = <Bytes>PyBytes_AsString(records)
    cdef Bytes end = p + PyBytes_Size(records)
    cdef Bytes name = <Bytes>PyBytes_AsString(topic)
    cdef Py_ssize_t name_size = PyBytes_Size(topic)
    cdef Py_ssize_t size
    cdef list found = []
    while p < end:
        size = plain_size(p, end, name, name_size)
        if size == 0:
            return None
        found.append(as_message(p, size, of, shared))
        p += size
    return found
