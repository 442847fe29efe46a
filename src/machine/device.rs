//! The devices on which tensors are computed, and two settings of every computation: the type of its numbers, and the number of particles
//! that go through the network at once. `cuda` without a usable GPU is an error, and never a silent run on the CPU.

use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use tch::{Cuda, Device, Kind};

use crate::schema::{Field, Reader, Setting, words};

/// The version of the libtorch that this binary was built against.
pub const LIBTORCH_VERSION: &str = env!("BELLA_LIBTORCH_VERSION");

/// The device that `--device` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if one is usable, otherwise the CPU; the log says which and why.
    Auto,
    Cpu,
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<DeviceChoice> {
        let index = |digits: &str| digits.parse().map_err(|_| anyhow!("`{digits}` is no GPU number"));
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda(0)),
            _ => match text.strip_prefix("cuda:") {
                Some(digits) => Ok(DeviceChoice::Cuda(index(digits)?)),
                None => bail!("unknown device `{text}`; known: auto, cpu, cuda, cuda:N"),
            },
        }
    }
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl DeviceChoice {
    /// Returns the device, after loading libtorch's CUDA part if it is needed.
    ///
    /// # Errors
    /// Fails for `cuda` if libtorch_cuda or a CUDA library is missing, if there is no driver, or if no GPU has that
    /// number.
    pub fn open(self) -> Result<Device> {
        self.open_for(0)
    }

    /// Returns the device of one of several processes on this machine. Each process uses the GPU after that of the
    /// process before it, and starts again from the first if there are fewer GPUs than processes. (A launcher may also
    /// show each process only one GPU.)
    ///
    /// # Errors
    /// Fails as [`open`](Self::open) does.
    pub fn open_for(self, local_rank: usize) -> Result<Device> {
        match self {
            DeviceChoice::Cpu => Ok(Device::Cpu),
            DeviceChoice::Cuda(index) => open_cuda(index, local_rank),
            DeviceChoice::Auto => match open_cuda(0, local_rank) {
                Ok(device) => Ok(device),
                Err(reason) => {
                    tracing::info!("computing on the CPU: no GPU can be used (-v says why)");
                    tracing::debug!("{reason:#}");
                    Ok(Device::Cpu)
                }
            },
        }
    }
}

fn open_cuda(index: usize, local_rank: usize) -> Result<Device> {
    load_libtorch_cuda()?;
    if !Cuda::is_available() {
        bail!("device cuda: libtorch sees no usable GPU: is the NVIDIA driver installed and not too old for CUDA 13?");
    }
    let count = Cuda::device_count() as usize;
    if index >= count {
        bail!("device cuda:{index}: this machine has {count} usable GPUs, numbered from 0");
    }
    Ok(Device::Cuda((index + local_rank) % count))
}

/// Loads libtorch_cuda before libtorch is first used. The linker drops it, since no function in it is called by name.
fn load_libtorch_cuda() -> Result<()> {
    // By its name, so that it is found where the rest of libtorch was found, also on another machine than the builder's.
    const NAME: &str = "libtorch_cuda.so";
    // SAFETY: libtorch's own library, whose static constructors only register its operators.
    let error = match unsafe { libloading::Library::new(NAME) } {
        Ok(loaded) => {
            std::mem::forget(loaded);
            return Ok(());
        }
        // The loader's own line is in the source of the error.
        Err(error) => std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string),
    };
    match error.starts_with(&format!("{NAME}: cannot open")) {
        true => bail!(
            "device cuda: there is no {NAME} beside the other libraries of libtorch (the CPU-only set): delete .libtorch \
             and run scripts/setup.sh on a machine with an NVIDIA GPU"
        ),
        false => bail!("device cuda: cannot load {NAME}: a CUDA library is missing ({error})"),
    }
}

/// Returns the compute type of a precision on a device.
///
/// # Errors
/// Fails for `bf16` if the processor or the GPU has no instructions for it, and for `f16` on a processor. The caller says which key or
/// option asked for the precision.
pub fn compute_kind(precision: Precision, device: Device) -> Result<Kind> {
    match (precision, native_bf16(device)) {
        (Precision::F64, _) => Ok(Kind::Double),
        (Precision::F16, _) if device == Device::Cpu => {
            bail!("\"f16\" is for GPUs without bf16, and a processor computes it slowly: use \"f32\" or \"auto\"")
        }
        (Precision::F16, _) => Ok(Kind::Half),
        (Precision::F32, _) | (Precision::Auto, false) => Ok(Kind::Float),
        (_, true) => Ok(Kind::BFloat16),
        (Precision::Bf16, false) => bail!(no_bf16(device)),
    }
}

/// Returns the reason for which a device does not compute in bf16.
fn no_bf16(device: Device) -> &'static str {
    match device {
        Device::Cpu => {
            "this processor has no bf16 instructions, so \"bf16\" would be slower than f32: use \"f32\" or \"auto\""
        }
        _ => {
            "this GPU has no bf16 instructions (compute capability below 8.0), so \"bf16\" would be slower than f32: use \"f16\", \
             \"f32\" or \"auto\""
        }
    }
}

fn native_bf16(device: Device) -> bool {
    match device {
        #[cfg(target_arch = "x86_64")]
        Device::Cpu => std::arch::is_x86_feature_detected!("avx512bf16"),
        #[cfg(not(target_arch = "x86_64"))]
        Device::Cpu => false,
        Device::Cuda(index) => has_bf16(compute_capability(index)),
        _ => true,
    }
}

/// Returns whether GPUs of a major compute capability have instructions for bf16, as all have since Ampere; one that the driver does not
/// tell is taken to have them.
fn has_bf16(major: Option<i32>) -> bool {
    major.is_none_or(|major| major >= 8)
}

/// Returns the major compute capability of GPU `index`; `None` if the driver does not tell.
fn compute_capability(index: usize) -> Option<i32> {
    type Init = unsafe extern "C" fn(u32) -> i32;
    type Get = unsafe extern "C" fn(*mut i32, i32) -> i32;
    type Attribute = unsafe extern "C" fn(*mut i32, i32, i32) -> i32;
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` of cuda.h.
    const MAJOR: i32 = 75;
    // SAFETY: the driver's own library, which libtorch_cuda has loaded, and three of its functions with the types that cuda.h gives them. The
    // numbers outlive the calls, which return 0 where they succeed.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").ok()?;
        let (init, get) = (driver.get::<Init>(b"cuInit").ok()?, driver.get::<Get>(b"cuDeviceGet").ok()?);
        let attribute = driver.get::<Attribute>(b"cuDeviceGetAttribute").ok()?;
        let (mut device, mut major) = (0, 0);
        let done = init(0) == 0
            && get(&mut device, i32::try_from(index).ok()?) == 0
            && attribute(&mut major, MAJOR, device) == 0;
        std::mem::forget(driver);
        done.then_some(major)
    }
}

/// Returns the name of the device in results.
pub fn name(device: Device) -> String {
    match device {
        Device::Cpu => "cpu".to_string(),
        Device::Cuda(index) => format!("cuda:{index}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Returns the name of a type of numbers in results and messages.
pub fn precision_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Float => "f32",
        Kind::Half => "f16",
        Kind::BFloat16 => "bf16",
        Kind::Double => "f64",
        _ => "another type",
    }
}

words! {
    /// The type in which forward and backward passes run. Master weights, kernels and the optimizer's state are f32.
    pub enum Precision {
        F32 = "f32",
        /// Double precision, to check formulas; slow.
        F64 = "f64",
        Bf16 = "bf16",
        /// Half precision with scaled losses, for GPUs without bf16.
        F16 = "f16",
        /// bf16 where this machine computes it natively.
        Auto = "auto",
    }
}

/// The number of particles that go through the network at once. Results depend on it only through rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// The number is the largest that fits in memory.
    Auto,
    /// A fixed number; 0 for all.
    Fixed(usize),
}

impl Setting for Chunk {
    type Range = RangeInclusive<usize>;

    fn field(reader: &Reader, key: &str, range: RangeInclusive<usize>) -> Field<Chunk> {
        reader.count_or_auto(key, range).map(|count| count.map_or(Chunk::Auto, Chunk::Fixed))
    }

    fn stand_in() -> Chunk {
        Chunk::Auto
    }
}

impl Serialize for Chunk {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Chunk::Auto => serializer.serialize_str("auto"),
            Chunk::Fixed(count) => serializer.serialize_u64(*count as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_for_gpus() {
        assert_eq!(compute_kind(Precision::F16, Device::Cuda(0)).unwrap(), Kind::Half);
        let error = compute_kind(Precision::F16, Device::Cpu).unwrap_err().to_string();
        assert!(error.starts_with("\"f16\" is for GPUs") && error.ends_with("use \"f32\" or \"auto\""), "{error}");
    }

    /// Turing (7.5) is the last generation without bf16 that libtorch for CUDA 13 serves.
    #[test]
    fn bf16_is_for_gpus_since_ampere() {
        assert_eq!([7, 8, 9, 12].map(|major| has_bf16(Some(major))), [false, true, true, true]);
        assert!(has_bf16(None));
        let why = no_bf16(Device::Cuda(0));
        assert!(why.starts_with("this GPU has no bf16") && why.contains("\"f16\""), "{why}");
    }

    #[test]
    fn device_words() {
        assert_eq!("cuda:3".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(3));
        for word in ["auto", "cpu", "cuda:1"] {
            assert_eq!(word.parse::<DeviceChoice>().unwrap().to_string(), word);
        }
        let error = "gpu".parse::<DeviceChoice>().unwrap_err().to_string();
        assert_eq!(error, "unknown device `gpu`; known: auto, cpu, cuda, cuda:N");
    }
}
