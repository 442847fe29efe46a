//! Takes over the tensors and messages that calls into C++ make.

use std::ffi::{CStr, c_char};

use tch::Tensor;
use torch_sys::C_tensor;

unsafe extern "C" {
    fn free(message: *mut c_char);
}

/// Takes over the tensor that a call makes.
///
/// # Panics
/// Panics with libtorch's message if there is none, as tch does; [`crate::base::tensor::guarded`] turns this into an error.
pub(in crate::machine) fn made(make: impl FnOnce(*mut *mut c_char) -> *mut C_tensor) -> Tensor {
    let mut message = std::ptr::null_mut();
    let made = make(&mut message);
    // SAFETY: the call returns a new tensor, or null and a message from malloc.
    unsafe {
        if !made.is_null() {
            return Tensor::from_ptr(made);
        }
        panic!("{}", text_of(message));
    }
}

/// Takes over a message.
///
/// # Safety
/// `message` is a string from malloc that nobody else frees.
pub(in crate::machine) unsafe fn text_of(message: *mut c_char) -> String {
    // SAFETY: as the caller says.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        free(message);
        text
    }
}
