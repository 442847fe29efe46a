//! The exponential moving average of theta over the steps, by the rules of timm's `ModelEmaV3`. It is of columns, so that of a low-rank
//! update its factors are averaged and not their product, as timm's would be with an adapter of PEFT.

use anyhow::Result;
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::experiment::Ema;

const NAME: &str = "ema";

/// The average of theta so far.
pub(super) struct Average {
    ema: Ema,
    /// The average, `[n, P]` in f32.
    pub theta: Tensor,
}

impl Average {
    /// Starts with the particles before the first step.
    pub fn new(ema: &Ema, theta: &Tensor) -> Average {
        Average { ema: ema.clone(), theta: theta.copy() }
    }

    /// Takes in theta after step number `step`, from 1.
    pub fn update(&mut self, theta: &Tensor, step: usize) {
        let _ = self.theta.lerp_(theta, 1.0 - self.ema.decay_at(step));
    }

    pub fn save(&self, state: &mut State) {
        state.put(NAME, &self.theta);
    }

    pub fn load(&mut self, state: &State) -> Result<()> {
        state.copy_into(NAME, &mut self.theta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Reader, Tree};

    fn ema(keys: &str) -> Result<Ema, String> {
        let sets: Vec<String> = keys.split_whitespace().map(|key| format!("ema.{key}")).collect();
        let tree = Tree::load(&[], &sets, &[]).map_err(|problems| problems.to_string())?;
        let root = Reader::root(&tree);
        let ema = root.table_if_given("ema", Ema::read);
        root.close(ema).map(|ema| ema.expect("a table")).map_err(|problems| problems.to_string())
    }

    // scripts/make_ema_goldens.py, timm 1.0.31
    const GOLDENS: [(&str, [f64; 6]); 4] = [
        (
            "decay=0.9",
            [1.75, 1.725000023841858, 1.752500057220459, 1.627250075340271, 1.7145251035690308, 1.7930725812911987],
        ),
        ("decay=0.9 update_after_step=2", [1.75, 1.5, 2.0, 1.850000023841858, 1.915000081062317, 1.97350013256073]),
        (
            "decay=0.9999 use_warmup=true",
            [1.75, 1.5925098657608032, 1.7884106636047363, 1.2771046161651611, 1.695328950881958, 1.9390263557434082],
        ),
        (
            "decay=0.6 use_warmup=true warmup_gamma=2.0 warmup_power=0.75 update_after_step=1",
            [1.75, 1.5, 1.8688939809799194, 1.0549447536468506, 1.781769037246704, 2.096850633621216],
        ),
    ];

    #[test]
    fn averages_are_those_of_timm() {
        for (keys, expected) in GOLDENS {
            let theta =
                |step: usize| Tensor::from_slice(&[0.0, 1.0].map(|own| ((step * step * 7 % 11) as f32) / 4.0 - own));
            let mut average = Average::new(&ema(keys).unwrap(), &theta(0));
            for (step, expected) in (1..).zip(expected) {
                average.update(&theta(step), step);
                let found = [0, 1].map(|column| average.theta.double_value(&[column]));
                assert!(
                    (found[0] - expected).abs() < 1e-6 && (found[0] - found[1] - 1.0).abs() < 1e-6,
                    "{keys}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn what_a_run_saves_is_read_again() {
        for (keys, _) in GOLDENS {
            let saved = ema(keys).unwrap();
            let table: toml::Table = toml::from_str(&toml::to_string(&saved).unwrap()).unwrap();
            let again: Vec<String> = table.iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(ema(&again.join(" ")).unwrap(), saved);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (keys, expected) in [
            ("decay=1.0", "decay"),
            ("decay=-0.1", "decay"),
            ("use_warmup=true", "decay"),
            ("decay=0.9 warmup_power=0.75", "without use_warmup"),
            ("decay=0.9 min_decay=0.1", "min_decay"),
        ] {
            let error = ema(keys).unwrap_err();
            assert!(error.contains(expected), "{keys}: {error}");
        }
    }
}
