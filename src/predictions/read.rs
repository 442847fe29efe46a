//! The numbers of a predictions file: those of bella are viewed where they lie, those of other programs are converted, logits
//! of every floating type and ids of every integer type.

use anyhow::{Result, bail, ensure};
use safetensors::{Dtype, tensor::TensorView};

/// Returns the logits in f32. Logits in f64 are rounded.
pub(super) fn floats(name: &str, tensor: &TensorView) -> Result<Vec<f32>> {
    let bytes = tensor.data();
    Ok(match tensor.dtype() {
        Dtype::F64 => each(bytes, |one| f64::from_le_bytes(one) as f32),
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F16 => each(bytes, |one| of_f16(u16::from_le_bytes(one))),
        // A bf16 is the upper half of an f32.
        Dtype::BF16 => each(bytes, |one| f32::from_bits(u32::from(u16::from_le_bytes(one)) << 16)),
        other => bail!("tensor `{name}` has type {other:?}; it must be F64, F32, F16 or BF16: save it as one of them"),
    })
}

/// Returns the weights in f64, `[m]`.
pub(super) fn doubles(name: &str, tensor: &TensorView) -> Result<Vec<f64>> {
    Ok(match tensor.dtype() {
        Dtype::F64 => each(tensor.data(), f64::from_le_bytes),
        _ => floats(name, tensor)?.into_iter().map(f64::from).collect(),
    })
}

/// Returns the labels or groups in u32, `[N]`.
pub(super) fn ids(name: &str, tensor: &TensorView) -> Result<Vec<u32>> {
    let bytes = tensor.data();
    let wide: Vec<i128> = match tensor.dtype() {
        Dtype::U8 => each(bytes, |one| u8::from_le_bytes(one).into()),
        Dtype::I8 => each(bytes, |one| i8::from_le_bytes(one).into()),
        Dtype::U16 => each(bytes, |one| u16::from_le_bytes(one).into()),
        Dtype::I16 => each(bytes, |one| i16::from_le_bytes(one).into()),
        Dtype::U32 => each(bytes, |one| u32::from_le_bytes(one).into()),
        Dtype::I32 => each(bytes, |one| i32::from_le_bytes(one).into()),
        Dtype::U64 => each(bytes, |one| u64::from_le_bytes(one).into()),
        Dtype::I64 => each(bytes, |one| i64::from_le_bytes(one).into()),
        other => bail!("tensor `{name}` has type {other:?}; it must be an integer type: save it as I64, say"),
    };
    let narrow = |(sample, id): (usize, i128)| -> Result<u32> {
        let narrowed = u32::try_from(id);
        ensure!(narrowed.is_ok(), "tensor `{name}` has {id} at sample {sample}; it must be from 0 to {}", u32::MAX);
        Ok(narrowed?)
    };
    wide.into_iter().enumerate().map(narrow).collect()
}

/// Converts every `SIZE` bytes to one value.
fn each<const SIZE: usize, T>(bytes: &[u8], value: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|chunk| value(*chunk)).collect()
}

/// Converts an IEEE 754 binary16 number. Every such number is exactly representable in f32.
fn of_f16(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f32::from(bits & 0x3ff);
    match i32::from(bits >> 10 & 0x1f) {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        exponent => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// Views the bytes of a memory map as numbers, without a copy.
pub(super) fn as_f32(bytes: &[u8]) -> &[f32] {
    // SAFETY: every bit pattern is an f32. `locate` checked the alignment, and safetensors checked the length.
    unsafe { bytes.align_to::<f32>().1 }
}

/// Views the bytes of a memory map as ids, without a copy.
pub(super) fn as_u32(bytes: &[u8]) -> &[u32] {
    // SAFETY: every bit pattern is a u32. `locate` checked the alignment, and safetensors checked the length.
    unsafe { bytes.align_to::<u32>().1 }
}

/// Views numbers as bytes, without a copy.
pub(super) fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: this is only called on f32, f64 and u32, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_values() {
        let floats_of = |dtype, bytes: &[u8], count| floats("x", &TensorView::new(dtype, vec![count], bytes).unwrap());
        let expected = [1.0, -2.5, 0.0, 65504.0, 2f32.powi(-24)];
        let f16: Vec<u8> = [0x3c00u16, 0xc100, 0, 0x7bff, 1].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        assert_eq!(floats_of(Dtype::F16, &f16, 5).unwrap(), expected);
        let bf16: Vec<u8> = [0x3f80u16, 0xc020].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        assert_eq!(floats_of(Dtype::BF16, &bf16, 2).unwrap(), [1.0, -2.5]);
        let f64: Vec<u8> = [1.0f64, -2.5].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(floats_of(Dtype::F64, &f64, 2).unwrap(), [1.0, -2.5]);
        assert!(of_f16(0x7c00).is_infinite() && of_f16(0x7c01).is_nan());
        assert!(floats_of(Dtype::I8, &[1], 1).unwrap_err().to_string().contains("type I8; it must be F64, F32"));
    }

    #[test]
    fn ids_must_not_be_negative() {
        let ids_of = |dtype, bytes: &[u8]| ids("labels", &TensorView::new(dtype, vec![2], bytes).unwrap());
        assert_eq!(ids_of(Dtype::U8, &[3, 250]).unwrap(), [3, 250]);
        assert_eq!(ids_of(Dtype::I16, &[3, 0, 4, 1]).unwrap(), [3, 260]);
        let error = ids_of(Dtype::I8, &[3, 255]).unwrap_err().to_string();
        assert_eq!(error, "tensor `labels` has -1 at sample 1; it must be from 0 to 4294967295");
        let error = ids_of(Dtype::F32, &[0; 8]).unwrap_err().to_string();
        assert!(error.contains("type F32; it must be an integer type"), "{error}");
    }
}
