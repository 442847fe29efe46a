//! The pixels around the first frame of a GIF that is smaller than its screen: Pillow gives them the transparent colour of the palette, or
//! else the first one.

use image::{Rgb, RgbImage};

/// The first frame on its screen.
struct Frame {
    left: u32,
    top: u32,
    width: u32,
    height: u32,
    around: Rgb<u8>,
}

/// Paints the pixels around the first frame of the GIF with these bytes.
pub fn paint_around(bytes: &[u8], image: &mut RgbImage) {
    let Some(Frame { left, top, width, height, around }) = first_frame(bytes) else { return };
    if (left, top, width, height) == (0, 0, image.width(), image.height()) {
        return;
    }
    let is_inside = |x: u32, y: u32| (left..left + width).contains(&x) && (top..top + height).contains(&y);
    image.enumerate_pixels_mut().filter(|(x, y, _)| !is_inside(*x, *y)).for_each(|(_, _, pixel)| *pixel = around);
}

/// Returns the first frame, behind the extensions before it; `None` if the file ends before.
fn first_frame(bytes: &[u8]) -> Option<Frame> {
    let palette = |flags: u8, at: usize| {
        let size = if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
        bytes.get(at..at + size)
    };
    let shared = palette(*bytes.get(10)?, 13)?;
    let (mut at, mut transparent) = (13 + shared.len(), 0);
    while *bytes.get(at)? == 0x21 {
        // The graphic control of the frame.
        if let [0xf9, 4, flags, _, _, color] = *bytes.get(at + 1..at + 7)? {
            transparent = if flags & 1 == 1 { color } else { 0 };
        }
        at += 2;
        while *bytes.get(at)? > 0 {
            at += 1 + usize::from(bytes[at]);
        }
        at += 1;
    }
    let descriptor = bytes.get(at..at + 10).filter(|descriptor| descriptor[0] == 0x2c)?;
    let [left, top, width, height] =
        [1, 3, 5, 7].map(|place| u32::from(u16::from_le_bytes([descriptor[place], descriptor[place + 1]])));
    let own = palette(descriptor[9], at + 10)?;
    let colors = if own.is_empty() { shared } else { own };
    let around = colors
        .chunks_exact(3)
        .nth(transparent.into())
        .map_or(Rgb([transparent; 3]), |color| Rgb([color[0], color[1], color[2]]));
    Some(Frame { left, top, width, height, around })
}
