//! Readouts, which compute features from the output tokens of the last block, batched over particles.

use tch::{Kind, Tensor};

use super::Traits;
use super::block::{activate, attention, merge_heads, split_heads};
use super::parts::{Parts, Readout};
use crate::model::network::Weights;

/// Returns the features `[p', B, d]` from the output of the last block, `[p, B, T, width]`.
pub fn features(weights: &Weights, x: &Tensor, (traits, parts): (&Traits, &Parts)) -> Tensor {
    let norm = |x: &Tensor| weights.norm("ln_post").forward(x, traits.eps);
    let patches = |x: &Tensor| x.narrow(2, parts.prefix, x.size()[2] - parts.prefix);
    let mean = |x: &Tensor| patches(x).mean_dim([2i64].as_slice(), true, None::<Kind>);
    let read = match parts.readout {
        Readout::Class => norm(&x.narrow(2, 0, 1)),
        Readout::ClassDistillation => norm(&x.narrow(2, 0, 2)).flatten(2, 3).unsqueeze(2),
        Readout::Mean => norm(&mean(x)),
        Readout::NormedMean => mean(&norm(x)),
        Readout::ClassMean => {
            let x = norm(x);
            Tensor::cat(&[x.narrow(2, 0, 1), mean(&x)], 3)
        }
        Readout::Map => attend(weights, &norm(x), traits),
    };
    let read = if weights.has("proj.weight") { weights.linear("proj").forward(&read) } else { read };
    read.squeeze_dim(2)
}

/// Computes attention of the learnt query over tokens `[p, B, T, d]`, then an MLP with a skip connection:
/// `[p', B, 1, d]`.
fn attend(weights: &Weights, x: &Tensor, traits: &Traits) -> Tensor {
    let (batch, tokens, width) = (x.size()[1], x.size()[2], x.size()[3]);
    let query = weights.linear("pool.q").forward(&weights.param("pool.query").unsqueeze(1).unsqueeze(1));
    let key_value = weights.linear("pool.kv").forward(x);
    let particles = query.size()[0].max(key_value.size()[0]);
    let heads = |x: &Tensor, length: i64, parts: i64| {
        split_heads(&x.expand([particles, batch, length, parts * width], false), parts, traits.heads)
    };
    let (query, key_value) = (heads(&query, 1, 1), heads(&key_value, tokens, 2));
    let read = attention(&query[0], &key_value[0], &key_value[1], false);
    let read = weights.linear("pool.proj").forward(&merge_heads(&read, particles));
    let normed = weights.norm("pool.ln").forward(&read, traits.eps);
    let hidden = activate(&weights.linear("pool.fc").forward(&normed), traits.activation);
    read + weights.linear("pool.out").forward(&hidden)
}
