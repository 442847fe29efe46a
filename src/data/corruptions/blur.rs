//! Gaussian blur over rows and columns. Beyond an edge, its last value is repeated.

use super::picture::{Corruption, Picture, byte};

pub static GAUSSIAN: Corruption = Corruption {
    key: "gaussian-blur",
    about: "Gaussian of s = 0.4 to 1.5 pixels up to 32x32, in proportion on larger images",
    apply: |picture, severity, _| {
        let side = picture.height.min(picture.width) as f64;
        blur(picture, [0.4, 0.6, 0.8, 1.1, 1.5][severity - 1] * (side / 32.0).max(1.0));
        Ok(())
    },
};

fn blur(picture: &mut Picture, sigma: f64) {
    let kernel = kernel(sigma);
    let (height, width) = (picture.height, picture.width);
    for plane in picture.pixels.chunks_exact_mut(height * width) {
        let values: Vec<f64> = plane.iter().map(|&value| f64::from(value) / 255.0).collect();
        let rows = along(&values, &kernel, height, |line, at| line * width + at, width);
        let both = along(&rows, &kernel, width, |line, at| at * width + line, height);
        plane.iter_mut().zip(both).for_each(|(value, x)| *value = byte(x));
    }
}

/// Convolves each of `lines` lines of `length` values. `index(line, at)` is the position of a value.
fn along(
    values: &[f64],
    kernel: &[f64],
    lines: usize,
    index: impl Fn(usize, usize) -> usize,
    length: usize,
) -> Vec<f64> {
    let radius = kernel.len() / 2;
    let mut result = vec![0.0; values.len()];
    for line in 0..lines {
        for at in 0..length {
            let near = |(k, weight): (usize, &f64)| {
                weight * values[index(line, (at + k).saturating_sub(radius).min(length - 1))]
            };
            result[index(line, at)] = kernel.iter().enumerate().map(near).sum();
        }
    }
    result
}

/// Returns the normal density at whole distances up to 4 sigma, scaled to sum to 1.
fn kernel(sigma: f64) -> Vec<f64> {
    let radius = (4.0 * sigma + 0.5) as i64;
    let weights: Vec<f64> = (-radius..=radius).map(|d| (-0.5 * (d as f64 / sigma).powi(2)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_spreads_as_the_normal_density() {
        // x = numpy.zeros((9, 9)); x[4, 4] = 1
        // numpy.round(255 * scipy.ndimage.gaussian_filter(x, 1.0, mode="nearest"))[4], and
        // row 0 of the same with x[0, 0] = 1
        for (point, row, expected) in [(40, 4, [0, 0, 5, 25, 41, 25, 5, 0, 0]), (0, 0, [125, 54, 10, 1, 0, 0, 0, 0, 0])]
        {
            let mut pixels = [0u8; 81];
            pixels[point] = 255;
            blur(&mut Picture { pixels: &mut pixels, height: 9, width: 9 }, 1.0);
            assert_eq!(pixels[row * 9..row * 9 + 9], expected);
        }
    }
}
