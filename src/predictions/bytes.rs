//! Views the bytes of a memory map as numbers, and numbers as bytes, without copying.

pub fn as_f32(bytes: &[u8]) -> &[f32] {
    // SAFETY: every bit pattern is an f32. `locate` checked the alignment, and safetensors checked the length.
    unsafe { bytes.align_to::<f32>().1 }
}

pub fn as_u32(bytes: &[u8]) -> &[u32] {
    // SAFETY: every bit pattern is a u32. `locate` checked the alignment, and safetensors checked the length.
    unsafe { bytes.align_to::<u32>().1 }
}

pub fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: this is only called on f32, f64 and u32, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
