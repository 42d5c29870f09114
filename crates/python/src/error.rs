//! Exceptions. Their classes are Python's (`meantime/_errors.py`).

use std::ffi::{OsStr, c_int};
use std::fmt::Display;
use std::path::Path;

use meantime_block::Errno;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Calls `name` of `meantime._errors`, which returns an exception.
fn made(name: &str, arguments: (c_int, String, Option<&OsStr>)) -> PyErr {
    Python::attach(|py| {
        let errors = py.import("meantime._errors");
        let made = errors.and_then(|errors| errors.getattr(name)?.call1(arguments));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// `meantime.Error`, or the class below it for `errno`, with the library's whole text.
pub(crate) fn os_error(errno: c_int, text: String, path: Option<&OsStr>) -> PyErr {
    made("error", (errno, text, path))
}

/// The exception for an offset or a length that is no multiple of the block size.
pub(crate) fn misaligned(text: String) -> PyErr {
    made("AlignmentError", (libc::EINVAL, text, None))
}

/// The exception for an error of the library.
pub(crate) fn failed<E: Display>(error: E) -> PyErr
where
    Errno: for<'a> From<&'a E>,
{
    os_error(Errno::from(&error).0, error.to_string(), None)
}

/// The exception for an error of the file at `path`.
pub(crate) fn failed_at(error: &meantime_ext4::Error, path: &Path) -> PyErr {
    os_error(Errno::from(error).0, error.to_string(), Some(path.as_os_str()))
}

/// The exception for a wrong argument.
pub(crate) fn wrong(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

/// The exception for a call in a state that does not allow it.
pub(crate) fn misuse(text: impl Into<String>) -> PyErr {
    PyRuntimeError::new_err(text.into())
}

/// The exception for a closed object, in the words of Python's own files.
pub(crate) fn closed(what: &str) -> PyErr {
    wrong(format!("I/O operation on a closed {what}"))
}

/// A policy by its name.
pub(crate) fn policy(name: &str) -> PyResult<meantime_completion::Policy> {
    name.parse().map_err(|error: meantime_completion::ParsePolicyError| wrong(error.to_string()))
}
