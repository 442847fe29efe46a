//! Corruptions by noise. Each value of each channel is disturbed independently.

use rand_chacha::ChaCha12Rng;

use super::picture::{Corruption, Picture};
use crate::base::random::{normal, uniform};

pub static GAUSSIAN: Corruption = Corruption {
    key: "gaussian-noise",
    about: "x + N(0, s^2), s = 0.04 to 0.10",
    apply: |picture, severity, rng| {
        let scale = [0.04, 0.06, 0.08, 0.09, 0.10][severity - 1];
        picture.map(|x| x + scale * normal(rng));
        Ok(())
    },
};

pub static SHOT: Corruption = Corruption {
    key: "shot-noise",
    about: "Poisson(c x) / c, c = 500 to 50 photons",
    apply: |picture, severity, rng| {
        let photons = [500.0, 250.0, 100.0, 75.0, 50.0][severity - 1];
        shot(picture, photons, rng);
        Ok(())
    },
};

pub static IMPULSE: Corruption = Corruption {
    key: "impulse-noise",
    about: "a share p of the values is 0 or 255, p = 0.01 to 0.07",
    apply: |picture, severity, rng| {
        let share = [0.01, 0.02, 0.03, 0.05, 0.07][severity - 1];
        picture.map(|x| {
            let draw = uniform(rng);
            if draw >= share { x } else { f64::from(draw < share / 2.0) }
        });
        Ok(())
    },
};

pub static SPECKLE: Corruption = Corruption {
    key: "speckle-noise",
    about: "x + x N(0, s^2), s = 0.06 to 0.20",
    apply: |picture, severity, rng| {
        let scale = [0.06, 0.10, 0.12, 0.16, 0.20][severity - 1];
        picture.map(|x| x + x * scale * normal(rng));
        Ok(())
    },
};

/// Draws Poisson counts by inversion, with one table of sums for each byte value in the image.
fn shot(picture: &mut Picture, photons: f64, rng: &mut ChaCha12Rng) {
    let mut sums: Vec<Option<Vec<f64>>> = vec![None; 256];
    for value in picture.pixels.iter_mut() {
        let mean = photons * f64::from(*value) / 255.0;
        let sums = sums[usize::from(*value)].get_or_insert_with(|| poisson_sums(mean));
        let draw = uniform(rng);
        *value = super::picture::byte(sums.partition_point(|&sum| sum <= draw) as f64 / photons);
    }
}

/// Returns P(count <= k) for k = 0, 1, … until it is within 1e-12 of 1.
fn poisson_sums(mean: f64) -> Vec<f64> {
    // exp(-500) is still a normal f64, so the sum can start with its smallest term.
    let mut term = (-mean).exp();
    let mut sums = vec![term];
    while sums[sums.len() - 1] < 1.0 - 1e-12 && (sums.len() as f64) < mean + 12.0 * mean.sqrt() + 20.0 {
        term *= mean / sums.len() as f64;
        sums.push(sums[sums.len() - 1] + term);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_sums_are_those_of_the_distribution() {
        // scipy.stats.poisson.cdf([0, 2, 5], 3.0); scipy.stats.poisson.cdf([500], 500.0)
        let sums = poisson_sums(3.0);
        for (k, expected) in [(0, 0.049787068), (2, 0.423190081), (5, 0.916082058)] {
            assert!((sums[k] - expected).abs() < 1e-8, "{k}: {}", sums[k]);
        }
        assert!((poisson_sums(500.0)[500] - 0.511891122).abs() < 1e-8);
        assert_eq!(poisson_sums(0.0), [1.0]);
    }
}
