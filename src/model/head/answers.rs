//! The likelihood of free answers under a language network's output matrix.

use tch::{Kind, Tensor};

use crate::base::tensor::wide;
use crate::model::language::OUTPUT;
use crate::model::network::Weights;

/// Returns −log p(answer | question), summed over the tokens of each answer, `[p', B]`, in f32 or wider. `hidden: [p, B, T, d]` are
/// the hidden states at all tokens; `targets: [q, B, A, 2]` are places and the tokens that follow there, of which −1 is none.
pub fn tokens_of_answers(weights: &Weights, hidden: &Tensor, targets: &Tensor) -> Tensor {
    let own = token_log_probabilities(weights, hidden, targets);
    -own.sum_dim_intlist([2i64].as_slice(), false, None::<Kind>)
}

/// Returns the log-probabilities of the tokens of answers, `[p', B, A]`, in f32 or wider; 0 where there is no token.
pub fn token_log_probabilities(weights: &Weights, hidden: &Tensor, targets: &Tensor) -> Tensor {
    let (places, tokens) = (targets.select(3, 0), targets.select(3, 1));
    let (particles, width) = (hidden.size()[0].max(targets.size()[0]), hidden.size()[3]);
    let index = places.unsqueeze(3).expand([particles, -1, -1, width], false);
    let read = hidden.expand([particles, -1, -1, -1], false).gather(2, &index, false);
    let logits = weights.linear(OUTPUT).forward(&read);
    let kind = wide(logits.kind());
    let all = logits.to_kind(kind).log_softmax(-1, kind);
    let index = tokens.clamp_min(0).unsqueeze(3).expand([all.size()[0], -1, -1, 1], false);
    all.gather(3, &index, false).squeeze_dim(3) * tokens.ge(0)
}
