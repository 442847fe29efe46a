//! Readouts, which compute features from the output tokens of the last block, batched over particles.

use super::Traits;
use super::parts::{Parts, Readout};
use crate::model::network::ops::{Mask, Ops};

/// Returns the features `[p', B, d]` from the output of the last block, `[p, B, T, width]`.
pub fn features<O: Ops>(ops: &O, x: &O::Value, (traits, parts): (&Traits, &Parts)) -> O::Value {
    let norm = |x: &O::Value| ops.norm("ln_post", x, traits.eps);
    let mean = |x: &O::Value| {
        let patches = ops.slice(x, 2, parts.prefix, ops.length(x, 2) - parts.prefix);
        ops.mean(&patches, 2)
    };
    let read = match parts.readout {
        Readout::Class => norm(&ops.slice(x, 2, 0, 1)),
        Readout::ClassDistillation => {
            let both = norm(&ops.slice(x, 2, 0, 2));
            ops.reshape(&both, &[1, 2 * ops.length(x, 3)])
        }
        Readout::Mean => norm(&mean(x)),
        Readout::NormedMean => mean(&norm(x)),
        Readout::ClassMean => {
            let x = norm(x);
            ops.concat(vec![ops.slice(&x, 2, 0, 1), mean(&x)], 3)
        }
        Readout::Map => attend(ops, &norm(x), traits),
    };
    let read = if ops.has("proj.weight") { ops.linear("proj", &read) } else { read };
    ops.reshape(&read, &[ops.length(&read, 3)])
}

/// Computes attention of the learnt query over tokens `[p, B, T, d]`, then an MLP with a skip connection:
/// `[p', B, 1, d]`.
fn attend<O: Ops>(ops: &O, x: &O::Value, traits: &Traits) -> O::Value {
    let query = ops.linear("pool.q", &ops.param("pool.query"));
    let key_value = ops.linear("pool.kv", x);
    let (query, key_value) = (ops.heads(&query, 1, traits.heads), ops.heads(&key_value, 2, traits.heads));
    let read = ops.attention([&query[0], &key_value[0], &key_value[1]], Mask::None);
    let read = ops.linear("pool.proj", &read);
    let normed = ops.norm("pool.ln", &read, traits.eps);
    let hidden = ops.activation(traits.activation, ops.linear("pool.fc", &normed));
    ops.add(read, ops.linear("pool.out", &hidden))
}
