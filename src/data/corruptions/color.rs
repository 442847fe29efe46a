//! Corruptions of colour: the contrast, and the value and saturation of the HSV model.

use super::picture::Corruption;

pub static CONTRAST: Corruption = Corruption {
    key: "contrast",
    about: "c (x - mean) + mean of each channel, c = 0.75 to 0.15",
    apply: |picture, severity, _| {
        let factor = [0.75, 0.50, 0.40, 0.30, 0.15][severity - 1];
        let plane = picture.height * picture.width;
        for channel in picture.pixels.chunks_exact_mut(plane) {
            let mean = channel.iter().map(|&value| f64::from(value)).sum::<f64>() / plane as f64;
            let less = |value: u8| (mean + factor * (f64::from(value) - mean)).round() as u8;
            channel.iter_mut().for_each(|value| *value = less(*value));
        }
        Ok(())
    },
};

pub static BRIGHTNESS: Corruption = Corruption {
    key: "brightness",
    about: "HSV value raised by 0.05 to 0.30",
    apply: |picture, severity, _| {
        let more = [0.05, 0.10, 0.15, 0.20, 0.30][severity - 1];
        picture.map_colors(|color| with_value(color, more));
        Ok(())
    },
};

pub static SATURATE: Corruption = Corruption {
    key: "saturate",
    about: "HSV saturation a s + b, from 0.3 s (paler) to 15 s + 0.15 (glaring)",
    apply: |picture, severity, _| {
        let (factor, more) = [(0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (15.0, 0.15)][severity - 1];
        picture.map_colors(|color| with_saturation(color, |s| factor * s + more));
        Ok(())
    },
};

fn extremes(color: [f64; 3]) -> (f64, f64) {
    (color.into_iter().fold(1.0, f64::min), color.into_iter().fold(0.0, f64::max))
}

/// Raises the value (the largest channel) by `more`, to at most 1. Hue and saturation stay the same.
fn with_value(color: [f64; 3], more: f64) -> [f64; 3] {
    let (_, value) = extremes(color);
    let raised = (value + more).min(1.0);
    // Black has no hue, so it becomes gray.
    if value == 0.0 { [raised; 3] } else { color.map(|x| x * raised / value) }
}

/// Replaces the saturation (max - min) / max by `f` of it, limited to `[0, 1]`. Hue and value stay the same.
fn with_saturation(color: [f64; 3], f: impl Fn(f64) -> f64) -> [f64; 3] {
    let (least, value) = extremes(color);
    if least == value {
        // Gray has no hue, so it is taken as red, as in HSV conversion.
        let rest = value * (1.0 - f(0.0).clamp(0.0, 1.0));
        return [value, rest, rest];
    }
    let saturation = (value - least) / value;
    let scale = f(saturation).clamp(0.0, 1.0) / saturation;
    color.map(|x| value - (value - x) * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: [f64; 3], expected: [f64; 3]) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?} {expected:?}");
    }

    #[test]
    fn hsv_changes_are_those_of_colorsys() {
        // h, s, v = colorsys.rgb_to_hsv(.2, .4, .8); colorsys.hsv_to_rgb(h, s, v + .1)
        close(with_value([0.2, 0.4, 0.8], 0.1), [0.225, 0.45, 0.9]);
        // colorsys.hsv_to_rgb(h, .3 * s, v)
        close(with_saturation([0.2, 0.4, 0.8], |s| 0.3 * s), [0.62, 0.68, 0.8]);
        // h, s, v = colorsys.rgb_to_hsv(.5, .5, .5); colorsys.hsv_to_rgb(h, .1, v)
        close(with_saturation([0.5; 3], |_| 0.1), [0.5, 0.45, 0.45]);
        close(with_value([0.0; 3], 0.3), [0.3; 3]);
    }
}
