//! The calls into `quantised.cpp`.

use std::ffi::{c_char, c_int};

use tch::{Kind, Tensor};
use torch_sys::C_tensor;

use crate::machine::calls::made;

/// The ways in which codes are stored, as `quantised.cpp` numbers them.
#[derive(Clone, Copy)]
pub enum Form {
    Int8 = 0,
    Nf4 = 1,
    Groups = 2,
}

/// Some rows of a layer.
pub struct Layer<'a> {
    pub form: Form,
    pub inputs: i64,
    pub first: i64,
    pub rows: i64,
    pub codes: &'a Tensor,
    pub scales: &'a Tensor,
    /// The zeros, and the group of each column.
    pub beside: Option<[&'a Tensor; 2]>,
}

/// The same as C++ takes it.
#[repr(C)]
struct Passed {
    form: i64,
    inputs: i64,
    first: i64,
    rows: i64,
    codes: *const C_tensor,
    scales: *const C_tensor,
    zeros: *const C_tensor,
    group: *const C_tensor,
}

unsafe extern "C" {
    fn bella_quantised_linear(
        layer: *const Passed,
        x: *const C_tensor,
        bias: *const C_tensor,
        onednn: bool,
        message: *mut *mut c_char,
    ) -> *mut C_tensor;
    fn bella_dequantised(layer: *const Passed, kind: c_int, plainly: bool, message: *mut *mut c_char) -> *mut C_tensor;
    fn bella_nf4_codes(of: *const C_tensor, scales: *const C_tensor, message: *mut *mut c_char) -> *mut C_tensor;
}

impl Layer<'_> {
    fn passed(&self) -> Passed {
        let [zeros, group] = match self.beside {
            Some(both) => both.map(Tensor::as_ptr),
            None => [std::ptr::null(); 2],
        };
        Passed {
            form: self.form as i64,
            inputs: self.inputs,
            first: self.first,
            rows: self.rows,
            codes: self.codes.as_ptr(),
            scales: self.scales.as_ptr(),
            zeros,
            group,
        }
    }
}

/// Returns x Wᵀ + b, `[M, rows]`, for `x: [M, in]`.
pub fn linear(layer: &Layer, x: &Tensor, bias: Option<&Tensor>, onednn: bool) -> Tensor {
    let (passed, bias) = (layer.passed(), bias.map_or(std::ptr::null(), Tensor::as_ptr));
    // SAFETY: the pointers are to tensors that live until the call returns, which lets no exception out.
    made(|message| unsafe { bella_quantised_linear(&passed, x.as_ptr(), bias, onednn, message) })
}

/// Returns the numbers of the rows in a type. `plainly` makes them by operations of libtorch, as on other devices.
pub fn dequantised(layer: &Layer, kind: Kind, plainly: bool) -> Tensor {
    let passed = layer.passed();
    // SAFETY: as above.
    made(|message| unsafe { bella_dequantised(&passed, number_of(kind), plainly, message) })
}

/// Returns the codes `[blocks, 32]` of numbers in f32 on the CPU, and writes the largest absolute value of each block to `largest`.
pub fn nf4_codes(of: &Tensor, largest: &Tensor) -> Tensor {
    // SAFETY: as above; `largest` is not shared with another thread.
    made(|message| unsafe { bella_nf4_codes(of.as_ptr(), largest.as_ptr(), message) })
}

/// Returns libtorch's number of a type.
fn number_of(kind: Kind) -> c_int {
    match kind {
        Kind::Half => 5,
        Kind::Double => 7,
        Kind::BFloat16 => 15,
        _ => 6,
    }
}
