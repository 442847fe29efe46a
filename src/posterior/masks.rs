//! Dropout masks as factors of the columns of theta (Gal and Ghahramani 2016, arXiv 1506.02142).
//!
//! A linear layer W x whose inputs x_j are kept with probability 1 − p, and divided by it, is the layer W diag(z) / (1 − p)
//! with z_j ~ Bernoulli(1 − p). So a mask is a draw of weights: it is the same for all images and tokens, and whoever knows
//! the seed makes it again, bit for bit.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::random::{At, Purpose, row, uniform_of_normal};
use crate::base::tensor_file::State;
use crate::subspace::geometry::Inputs;

/// The inputs that are dropped, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Masks {
    pub layers: Vec<Inputs>,
    /// The probability p that an input is dropped, below 1.
    pub rate: f64,
}

/// The place of a mask: its purpose, and its number.
#[derive(Clone, Copy)]
pub struct Place {
    pub seed: u64,
    pub purpose: Purpose,
    pub at: At,
    pub particle: i64,
}

impl Masks {
    /// Returns the factors of the weights in one mask, `[P]` for `theta: [n, P]`: 1 where nothing is dropped, else
    /// z / (1 − p). They are a pure function of the place.
    pub fn factors(&self, place: Place, theta: &Tensor) -> Tensor {
        let units: i64 = self.layers.iter().map(|layer| layer.inputs).sum();
        let like = Tensor::zeros([1, units], (theta.kind(), theta.device()));
        let Place { seed, purpose, at, particle } = place;
        let normal = row(seed, purpose, at, particle, &like);
        let kept = uniform_of_normal(&normal).ge(self.rate).to_kind(theta.kind()) / (1.0 - self.rate);
        let factors = Tensor::ones([theta.size()[1]], (theta.kind(), theta.device()));
        let mut unit = 0;
        for Inputs { start, outputs, inputs, .. } in &self.layers {
            let own = kept.narrow(0, unit, *inputs);
            factors.narrow(0, *start, outputs * inputs).view([*outputs, *inputs]).copy_(&own);
            unit += inputs;
        }
        factors
    }

    /// Returns rows `[P]` or `[k, P]` of theta under masks, of which `factors` are those of each row. Columns that are weights less 1
    /// become the masked weights less 1.
    pub fn on(&self, rows: &Tensor, factors: &Tensor) -> Tensor {
        let masked = rows * factors;
        for Inputs { start, outputs, inputs, plus } in self.layers.iter().filter(|layer| layer.plus != 0) {
            let own = |tensor: &Tensor| tensor.narrow(-1, *start, outputs * inputs);
            let _ = own(&masked).g_add_(&((own(factors) - 1.0) * *plus));
        }
        masked
    }

    /// Adds everything to the tensors of a file.
    pub fn save(&self, prefix: &str, state: &mut State) {
        let numbers: Vec<i64> = self.layers.iter().flat_map(|l| [l.start, l.outputs, l.inputs, l.plus]).collect();
        state.put(&format!("{prefix}dropout.layers"), &Tensor::from_slice(&numbers).view([-1, 4]));
        state.put(&format!("{prefix}dropout.rate"), &Tensor::from_slice(&[self.rate]));
    }

    /// Reads the masks that [`save`](Self::save) added; `None` if there are none.
    ///
    /// # Errors
    /// Fails if the masks are not of particles with `parameters` columns.
    pub fn load(prefix: &str, state: &State, parameters: i64) -> Result<Option<Masks>> {
        if !state.has(&format!("{prefix}dropout.rate")) {
            return Ok(None);
        }
        let (layers, rate) =
            (state.get(&format!("{prefix}dropout.layers"))?, state.get(&format!("{prefix}dropout.rate"))?);
        ensure!(layers.dim() == 2 && layers.size()[1] == 4 && rate.numel() == 1, "the dropout masks are damaged");
        let of = |layer: i64| {
            let number = |place: i64| layers.to_kind(Kind::Int64).int64_value(&[layer, place]);
            Inputs { start: number(0), outputs: number(1), inputs: number(2), plus: number(3) }
        };
        let layers: Vec<Inputs> = (0..layers.size()[0]).map(of).collect();
        let fits = |l: &Inputs| {
            let end = l.outputs.checked_mul(l.inputs).and_then(|count| count.checked_add(l.start));
            l.start >= 0 && l.outputs > 0 && l.inputs > 0 && end.is_some_and(|end| end <= parameters)
        };
        let rate = rate.double_value(&[0]);
        ensure!(layers.iter().all(fits) && (0.0..1.0).contains(&rate), "the dropout masks are of other particles");
        Ok(Some(Masks { layers, rate }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    fn place(particle: i64) -> Place {
        Place { seed: 3, purpose: Purpose::Posterior, at: At { step: 0, sample: 0, part: 0 }, particle }
    }

    #[test]
    fn inputs_are_dropped_as_often_as_said_and_the_others_scaled() {
        let masks = Masks { layers: vec![Inputs { start: 5, outputs: 2, inputs: 20_000, plus: 0 }], rate: 0.3 };
        let theta = Tensor::zeros([1, 40_012], (Kind::Float, Device::Cpu));
        let factors = masks.factors(place(0), &theta);
        assert!(factors.equal(&masks.factors(place(0), &theta)) && !factors.equal(&masks.factors(place(1), &theta)));
        for (start, length) in [(0, 5), (40_005, 7)] {
            assert!((factors.narrow(0, start, length) - 1.0).abs().max().double_value(&[]) == 0.0);
        }
        let layer = factors.narrow(0, 5, 40_000).view([2, 20_000]);
        assert!(layer.get(0).equal(&layer.get(1)), "an input is dropped for all outputs");
        let dropped = layer.get(0).eq(0.0).to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
        assert!((dropped - 0.3).abs() < 0.015, "{dropped}");
        assert!((layer.max().double_value(&[]) - 1.0 / 0.7).abs() < 1e-6);
    }

    /// Where columns are factors less 1, a mask drops the factors r or divides them by 1 − p, and not the columns r − 1.
    #[test]
    fn factors_less_one_are_dropped_as_factors() {
        let of = |plus: i64| Masks { layers: vec![Inputs { start: 1, outputs: 1, inputs: 6, plus }], rate: 0.5 };
        let rows = Tensor::arange(16, (Kind::Double, Device::Cpu)).view([2, 8]) * 0.25 - 1.0;
        let masks = of(1);
        let factors = Tensor::stack(&[masks.factors(place(0), &rows), masks.factors(place(1), &rows)], 0);
        let masked = masks.on(&rows, &factors);
        let (inside, own) = (masked.narrow(1, 1, 6) + 1.0, factors.narrow(1, 1, 6));
        assert!((inside - (rows.narrow(1, 1, 6) + 1.0) * &own).abs().max().double_value(&[]) < 1e-12);
        assert!(own.eq(0.0).any().int64_value(&[]) == 1 && own.eq(2.0).any().int64_value(&[]) == 1);
        for column in [0, 7] {
            assert!(masked.select(1, column).equal(&rows.select(1, column)));
        }
        assert!(masked.get(1).equal(&masks.on(&rows.get(1), &factors.get(1))), "one row is masked as among others");
        assert!(of(0).on(&rows, &factors).equal(&(&rows * &factors)));
    }

    #[test]
    fn masks_of_other_particles_are_refused() {
        let masks = Masks { layers: vec![Inputs { start: 5, outputs: 2, inputs: 4, plus: 1 }], rate: 0.3 };
        let mut state = State::default();
        masks.save("", &mut state);
        assert_eq!(Masks::load("", &state, 13).unwrap(), Some(masks));
        let error = Masks::load("", &state, 12).unwrap_err().to_string();
        assert_eq!(error, "the dropout masks are of other particles");
    }
}
