//! Python's memory: objects with the buffer protocol.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// The bytes of an object, exported: the object can neither free nor move them until this is
/// dropped. As with `os.preadv`, the program must not change them while an I/O uses them.
pub(crate) struct Memory(PyUntypedBuffer);

impl Memory {
    /// The bytes of `object`, to read them.
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object).map_err(|error| {
            if !error.is_instance_of::<PyTypeError>(object.py()) {
                return error;
            }
            PyTypeError::new_err(format!(
                "a bytes-like object is needed (bytes, bytearray, memoryview, numpy array), not {}",
                object.get_type()
            ))
        })?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "the buffer is not contiguous: copy it first, e.g. numpy.ascontiguousarray",
            ));
        }
        Ok(Self(buffer))
    }

    /// The bytes of `object`, to write them.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let memory = Self::readable(object)?;
        if memory.0.readonly() {
            return Err(PyTypeError::new_err(
                "the buffer is read only: give a bytearray, a writable memoryview or array",
            ));
        }
        Ok(memory)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: `len` contiguous bytes, exported until `self` is dropped. (Whoever changes them
        // meanwhile gets what a data race gives, as with every I/O function of Python itself.)
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.len()) }
    }

    /// The bytes for writing. Only for memory of [`writable`](Self::writable).
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: as in `as_slice`; and the exporter allows writing, which `writable` has checked.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.len()) }
    }
}
