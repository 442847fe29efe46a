//! Frozen weights that are stored in 8 or 4 bits. A product makes their numbers when it needs them and does not keep them, and the
//! product of its gradient makes them again (`quantised.cpp`, since tch has no autograd functions). Gradients flow to the inputs of such a
//! layer; its weight has none.
//!
//! `int8` is symmetric with the largest absolute value of each output row, as the weights of LLM.int8 are (Dettmers et al. 2022,
//! arXiv 2208.07339) and bitsandbytes' `int8_vectorwise_quant` makes them. `nf4` is the data type of QLoRA (Dettmers et al. 2023, arXiv
//! 2305.14314) in blocks of 64 with their largest absolute value in f32, as bitsandbytes' `quantize_4bit` makes it.
//!
//! Differs: bitsandbytes' product in 8 bits also rounds the inputs of a layer; here they stay as they are. The largest values of `nf4`
//! are not quantised themselves, which takes 0.37 bits a weight more.

mod library;

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::machine::linear_kernels::by_onednn;
use crate::machine::memory::release_freed;
use crate::schema::words;
use library::{Form, Layer};

words! {
    /// The way in which frozen weights are stored.
    pub enum Scheme {
        /// 8 bits, with a scale for each output row.
        Int8 = "int8",
        /// 4 bits, with a scale for each 64 weights.
        Nf4 = "nf4",
    }
}

/// The number of weights that share a scale in [`Scheme::Nf4`].
pub const BLOCK: i64 = 64;

/// The most numbers that a product makes of a weight at a time, as in `quantised.cpp`.
const SLICE: i64 = 1 << 24;

/// The weight of a linear layer, or some of its output rows.
#[derive(Debug)]
pub struct Quantised {
    codes: Codes,
    inputs: i64,
    /// The first of its rows, and their number.
    rows: (i64, i64),
    /// The type of its numbers.
    kind: Kind,
}

/// The stored form of all rows.
#[derive(Debug)]
enum Codes {
    /// Codes `[out, in]` (i8) and the largest absolute value of each row, `[out]` (f32).
    Int8 {
        codes: Tensor,
        largest: Tensor,
    },
    /// Codes of all rows one after the other, two a byte, `[blocks, 32]`, and the largest absolute value of each block, `[blocks]` (f32).
    Nf4 {
        codes: Tensor,
        largest: Tensor,
    },
    Groups(Groups),
}

/// Whole numbers from 0 to 15 with a scale and a zero for each group of columns.
#[derive(Debug)]
pub struct Groups {
    /// The numbers, two a byte and the first in the high bits, `[out, in / 2]`.
    pub codes: Tensor,
    /// The scales, `[out, groups]` (f32).
    pub scales: Tensor,
    /// The zeros, `[out, groups]` (f32).
    pub zeros: Tensor,
    /// The group of each column, `[in]` (i32).
    pub group: Tensor,
}

impl Quantised {
    /// Stores a weight `[out, in]` in fewer bits.
    ///
    /// # Errors
    /// Fails if a value is NaN or infinite.
    pub fn of(weight: &Tensor, scheme: Scheme) -> Result<Quantised> {
        let (outputs, inputs) = weight.size2()?;
        let wide = weight.to_kind(Kind::Float).contiguous();
        ensure!(bool::try_from(wide.isfinite().all())?, "it holds values that are NaN or infinite");
        let codes = match scheme {
            Scheme::Int8 => {
                let largest = wide.abs().amax([1], false);
                // A row of zeros has the scale 0.
                let codes = (&wide * (127.0f64 / &largest).unsqueeze(1)).round().nan_to_num(0.0, 0.0, 0.0);
                Codes::Int8 { codes: codes.to_kind(Kind::Int8), largest }
            }
            Scheme::Nf4 => {
                let blocks = (outputs * inputs + BLOCK - 1) / BLOCK;
                let largest = Tensor::empty([blocks], (Kind::Float, Device::Cpu));
                let codes = library::nf4_codes(&wide.to_device(Device::Cpu), &largest);
                let device = weight.device();
                Codes::Nf4 { codes: codes.to_device(device), largest: largest.to_device(device) }
            }
        };
        drop(wide);
        // What was made on the way would otherwise stay with this process, between the codes of the layers to come.
        release_freed();
        Ok(Quantised { codes, inputs, rows: (0, outputs), kind: weight.kind() })
    }

    /// Returns a weight `[out, in]` that has a size and takes no memory.
    pub fn without_memory([outputs, inputs]: [i64; 2], scheme: Scheme, kind: Kind) -> Quantised {
        let none = |shape: &[i64], kind| Tensor::zeros([1], (kind, Device::Cpu)).expand(shape, false);
        let blocks = (outputs * inputs + BLOCK - 1) / BLOCK;
        let codes = match scheme {
            Scheme::Int8 => {
                Codes::Int8 { codes: none(&[outputs, inputs], Kind::Int8), largest: none(&[outputs], Kind::Float) }
            }
            Scheme::Nf4 => {
                Codes::Nf4 { codes: none(&[blocks, BLOCK / 2], Kind::Uint8), largest: none(&[blocks], Kind::Float) }
            }
        };
        Quantised { codes, inputs, rows: (0, outputs), kind }
    }

    /// Takes codes `[out, in]` (i8) with the largest absolute value of each row, for numbers of a type.
    ///
    /// # Errors
    /// Fails if the shapes do not fit.
    pub fn int8(codes: Tensor, largest: &Tensor, kind: Kind) -> Result<Quantised> {
        ensure!(
            codes.dim() == 2,
            "its codes have the shape {:?}, and those of a linear layer have two axes",
            codes.size()
        );
        let (outputs, inputs) = codes.size2()?;
        let largest = largest.to_kind(Kind::Float).reshape([-1]);
        ensure!(
            codes.kind() == Kind::Int8 && largest.size() == [outputs],
            "its codes and scales do not fit each other"
        );
        Ok(Quantised { codes: Codes::Int8 { codes: codes.contiguous(), largest }, inputs, rows: (0, outputs), kind })
    }

    /// Takes codes of blocks of 64, two a byte, with the largest absolute value of each block (f32), of a weight `[out, in]`.
    ///
    /// # Errors
    /// Fails if the numbers of codes and scales do not fit the shape.
    pub fn nf4(codes: &Tensor, largest: Tensor, [outputs, inputs]: [i64; 2], kind: Kind) -> Result<Quantised> {
        let (all, bytes) = (outputs * inputs, codes.numel() as i64);
        let blocks = (all + BLOCK - 1) / BLOCK;
        ensure!(
            codes.kind() == Kind::Uint8 && bytes == (all + 1) / 2 && largest.size() == [blocks],
            "its codes and scales do not fit the shape {outputs} x {inputs}"
        );
        let padded = codes.reshape([-1]).constant_pad_nd([0, blocks * BLOCK / 2 - bytes]);
        let codes = Codes::Nf4 { codes: padded.view([blocks, BLOCK / 2]), largest };
        Ok(Quantised { codes, inputs, rows: (0, outputs), kind })
    }

    /// Takes numbers in groups.
    ///
    /// # Errors
    /// Fails if the shapes do not fit, or if a column names a group that is not there.
    pub fn groups(groups: Groups, kind: Kind) -> Result<Quantised> {
        let Groups { codes, scales, zeros, group } = &groups;
        let (outputs, half) = codes.size2()?;
        let (_, count) = scales.size2()?;
        let fits = scales.size() == [outputs, count] && zeros.size() == scales.size() && group.size() == [2 * half];
        ensure!(fits, "its codes, scales and zeros do not fit each other");
        let range = |of: Tensor| of.int64_value(&[]);
        ensure!(
            range(group.min()) >= 0 && range(group.max()) < count,
            "its columns name groups up to {}, but it has {count}",
            range(group.max())
        );
        Ok(Quantised { inputs: 2 * half, rows: (0, outputs), kind, codes: Codes::Groups(groups) })
    }

    /// Returns the numbers of outputs and inputs.
    pub fn size(&self) -> [i64; 2] {
        [self.rows.1, self.inputs]
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn device(&self) -> Device {
        self.tensors()[0].device()
    }

    /// Returns the bytes that are stored.
    pub fn bytes(&self) -> u64 {
        let all = self.tensors().into_iter();
        all.map(|tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64).sum()
    }

    /// Returns the bytes of the numbers that a product makes at a time, in a type.
    pub fn slice_bytes(&self, kind: Kind) -> u64 {
        let [outputs, inputs] = self.size();
        let rows = (SLICE / inputs.max(1)).clamp(1, outputs.max(1));
        (rows * inputs) as u64 * kind.elt_size_in_bytes() as u64
    }

    fn tensors(&self) -> Vec<&Tensor> {
        match &self.codes {
            Codes::Int8 { codes, largest } | Codes::Nf4 { codes, largest } => vec![codes, largest],
            Codes::Groups(Groups { codes, scales, zeros, group }) => vec![codes, scales, zeros, group],
        }
    }

    /// Returns the same weight with each of its tensors changed.
    fn each(&self, of: impl Fn(&Tensor) -> Tensor) -> Quantised {
        let codes = match &self.codes {
            Codes::Int8 { codes, largest } => Codes::Int8 { codes: of(codes), largest: of(largest) },
            Codes::Nf4 { codes, largest } => Codes::Nf4 { codes: of(codes), largest: of(largest) },
            Codes::Groups(Groups { codes, scales, zeros, group }) => {
                let [codes, scales, zeros, group] = [codes, scales, zeros, group].map(of);
                Codes::Groups(Groups { codes, scales, zeros, group })
            }
        };
        Quantised { codes, ..*self }
    }

    /// Returns the same weight, sharing its tensors.
    pub fn again(&self) -> Quantised {
        self.each(Tensor::shallow_clone)
    }

    /// Returns the same weight on a device, for numbers of a type.
    pub fn to(&self, device: Device, kind: Kind) -> Quantised {
        Quantised { kind, ..self.each(|tensor| tensor.to_device(device)) }
    }

    /// Returns output rows `start..start + length`, sharing what is stored.
    pub fn rows(&self, start: i64, length: i64) -> Quantised {
        Quantised { rows: (self.rows.0 + start, length), ..self.again() }
    }

    /// Returns its numbers, `[out, in]`.
    pub fn numbers(&self) -> Tensor {
        library::dequantised(&self.layer(), self.kind, false)
    }

    /// Returns `x Wᵀ + b` for `x: [p, M, in]` and `bias: [out]`: `[p, M, out]`.
    pub fn linear(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let (size, outputs) = (x.size(), self.rows.1);
        // The product gives a bias no gradient.
        let (fixed, trained) = (bias.filter(|bias| !bias.requires_grad()), bias.filter(|bias| bias.requires_grad()));
        let onednn = by_onednn(x, outputs * self.inputs);
        let y = library::linear(&self.layer(), &x.reshape([-1, self.inputs]), fixed, onednn);
        let y = y.view([size[0], size[1], outputs]);
        trained.map_or_else(|| y.shallow_clone(), |bias| &y + bias)
    }

    fn layer(&self) -> Layer<'_> {
        let (first, rows) = self.rows;
        let (form, codes, scales) = match &self.codes {
            Codes::Int8 { codes, largest } => (Form::Int8, codes, largest),
            Codes::Nf4 { codes, largest } => (Form::Nf4, codes, largest),
            Codes::Groups(Groups { codes, scales, .. }) => (Form::Groups, codes, scales),
        };
        let beside = match &self.codes {
            Codes::Groups(Groups { zeros, group, .. }) => Some([zeros, group]),
            _ => None,
        };
        Layer { form, inputs: self.inputs, first, rows, codes, scales, beside }
    }
}

#[cfg(test)]
mod tests;
