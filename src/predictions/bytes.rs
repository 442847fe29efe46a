//! Numbers of a memory map as they lie there, and back.

pub fn as_f32(bytes: &[u8]) -> &[f32] {
    // SAFETY: every bit pattern is an f32; `locate` checked alignment and safetensors the length.
    unsafe { bytes.align_to::<f32>().1 }
}

pub fn as_u32(bytes: &[u8]) -> &[u32] {
    // SAFETY: every bit pattern is a u32; `locate` checked alignment and safetensors the length.
    unsafe { bytes.align_to::<u32>().1 }
}

pub fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: only called on f32 and u32, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
