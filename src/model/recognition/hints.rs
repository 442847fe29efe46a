//! Hints from the Python code inside a TorchScript archive: activation, LayerNorm eps and head width.
//!
//! Usually they only order the candidates that the self-check tries; they decide alone when the archive cannot run.

use crate::model::vit::Activation;

/// Hints, the most frequent first.
#[derive(Debug, Default, Clone)]
pub struct Hints {
    pub activation: Option<Activation>,
    pub eps: Option<f64>,
    /// The last axes of reshapes, as candidates for the width of one head.
    pub head_widths: Vec<i64>,
}

impl Hints {
    /// Reads the joined code of an archive.
    pub fn read(code: &str) -> Hints {
        Hints { activation: activation(code), eps: eps(code), head_widths: head_widths(code) }
    }
}

fn activation(code: &str) -> Option<Activation> {
    if code.contains("1.702") {
        return Some(Activation::QuickGelu);
    }
    let call = code.split("gelu(").nth(1)?;
    let arguments = call.split(')').next()?;
    Some(if arguments.contains("tanh") { Activation::GeluTanh } else { Activation::Gelu })
}

/// Returns the most frequent number between 1e-13 and 1e-3 in calls of `layer_norm`.
fn eps(code: &str) -> Option<f64> {
    let mut seen: Vec<(f64, usize)> = Vec::new();
    for call in code.split("layer_norm(").skip(1) {
        let arguments = &call[..call.find('\n').unwrap_or(call.len())];
        let number = arguments
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '-'))
            .filter_map(|word| word.parse::<f64>().ok())
            .find(|value| (1e-13..1e-3).contains(value));
        if let Some(value) = number {
            match seen.iter_mut().find(|(known, _)| *known == value) {
                Some((_, count)) => *count += 1,
                None => seen.push((value, 1)),
            }
        }
    }
    seen.into_iter().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

/// Returns the last constants in the lists of `view` and `reshape`, the most frequent first.
fn head_widths(code: &str) -> Vec<i64> {
    let mut seen: Vec<(i64, usize)> = Vec::new();
    for call in code.split("torch.view(").skip(1).chain(code.split("torch.reshape(").skip(1)) {
        let Some(list) = call.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else { continue };
        let Some(last) = list.0.rsplit(',').next().and_then(|word| word.trim().parse::<i64>().ok()) else { continue };
        if last < 2 {
            continue;
        }
        match seen.iter_mut().find(|(known, _)| *known == last) {
            Some((_, count)) => *count += 1,
            None => seen.push((last, 1)),
        }
    }
    seen.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    seen.into_iter().map(|(width, _)| width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_traced_code() {
        let code = "  _4 = torch.layer_norm(x, [192], weight, bias, 9.9999999999999995e-07)\n\
                    _5 = torch.view(q, [2, 17, 3, 3, 64])\n  y = torch.gelu(x, approximate=\"tanh\")\n";
        let hints = Hints::read(code);
        assert_eq!(hints.activation, Some(Activation::GeluTanh));
        assert_eq!(hints.eps, Some(1e-6));
        assert_eq!(hints.head_widths, vec![64]);
    }

    #[test]
    fn silence_is_no_hint() {
        let hints = Hints::read("def forward(self, x): return torch.relu(x)");
        assert!(hints.activation.is_none() && hints.eps.is_none() && hints.head_widths.is_empty());
    }
}
