//! A contact sheet as one PNG: thumbnails in rows under headings, each with a few lines of text. The text is drawn first;
//! the thumbnails are then copied onto it as pixels.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use image::RgbImage;

use crate::base::files::write_atomic;
use crate::data::{Pixels, resize_pixels};
use crate::plot::text::{BOLD, shorten, wrap};
use crate::plot::{Canvas, INK, MUTED, Side, Style, raster};

/// One image with its text.
#[derive(Clone, Debug)]
pub struct Tile {
    /// The bytes of the image, `[3, height, width]`.
    pub pixels: Vec<u8>,
    pub height: usize,
    pub width: usize,
    /// The lines of text. The first one is bold; a line that is too long for its column is cut and ends in an ellipsis.
    pub lines: Vec<String>,
}

/// Tiles under a heading.
#[derive(Clone, Debug)]
pub struct Section {
    pub heading: String,
    pub tiles: Vec<Tile>,
}

/// Sections from top to bottom, below a title and a note on what the lines of text say. An empty one is left out.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    pub title: String,
    pub note: String,
    pub sections: Vec<Section>,
    /// The number of tiles in a row.
    pub columns: usize,
}

/// The number of pixels of the sheet per unit of the lengths below.
const SCALE: usize = 2;
/// The side of the square that each thumbnail is fitted into.
const THUMBNAIL: usize = 128;
const GAP: usize = 14;
const MARGIN: usize = 20;
const HEADING: usize = 34;
/// The heights of a line of the title and of the note, and the size of the title's letters.
const TITLE: usize = 26;
const NOTE: usize = 18;
const TITLE_SIZE: f64 = 17.0;
const LINE: usize = 15;
/// The space between rows of tiles. Half of it separates a thumbnail from its first line.
const SPACE: usize = 12;

/// Draws a sheet and writes it to the PNG file `path`.
///
/// # Errors
/// Fails if there is no tile or no column, the pixels of a tile do not match its size, the sheet is too large to draw,
/// or `path` cannot be written.
pub fn draw(sheet: &Sheet, path: &Path) -> Result<()> {
    let bytes = png(sheet)?;
    write_atomic(path, |out| Ok(out.write_all(&bytes)?))
}

/// Returns a sheet as PNG.
///
/// # Errors
/// Fails like [`draw`].
pub fn png(sheet: &Sheet) -> Result<Vec<u8>> {
    ensure!(sheet.columns > 0, "contact sheet: at least one column is needed");
    ensure!(sheet.sections.iter().any(|section| !section.tiles.is_empty()), "contact sheet: there is no image to show");
    let layout = Layout::new(sheet);
    let mut drawn = raster::pixels(&layout.text(), SCALE as f32)?;
    for placed in &layout.tiles {
        placed.draw(&mut drawn)?;
    }
    raster::encoded(drawn)
}

/// The positions of the headings and tiles, and the size of the sheet.
struct Layout<'a> {
    /// The lines of the title and of the note, with their places and sizes of letters.
    head: Vec<(usize, String, f64)>,
    headings: Vec<(usize, &'a str)>,
    tiles: Vec<Placed<'a>>,
    width: usize,
    height: usize,
}

/// A tile with the upper left corner of its square.
struct Placed<'a> {
    tile: &'a Tile,
    left: usize,
    top: usize,
}

impl<'a> Layout<'a> {
    fn new(Sheet { title, note, sections, columns }: &'a Sheet) -> Layout<'a> {
        let filled = || sections.iter().filter(|section| !section.tiles.is_empty());
        let used = filled().map(|section| section.tiles.len().min(*columns)).max().unwrap_or(1);
        let (mut head, mut headings, mut tiles, mut y) = (Vec::new(), Vec::new(), Vec::new(), MARGIN);
        let room = used * (THUMBNAIL + GAP) - GAP;
        for (words, height, size) in [(title, TITLE, TITLE_SIZE), (note, NOTE, 11.0)] {
            for line in wrap(words, BOLD * size, room as f64, 4).into_iter().filter(|line| !line.is_empty()) {
                head.push((y, line, size));
                y += height;
            }
        }
        y += if head.is_empty() { 0 } else { GAP };
        for section in filled() {
            headings.push((y, section.heading.as_str()));
            y += HEADING;
            for row in section.tiles.chunks(*columns) {
                let place = |(i, tile)| Placed { tile, left: MARGIN + i * (THUMBNAIL + GAP), top: y };
                tiles.extend(row.iter().enumerate().map(place));
                let lines = row.iter().map(|tile| tile.lines.len()).max().unwrap_or(0);
                y += THUMBNAIL + SPACE / 2 + lines * LINE + SPACE;
            }
        }
        Layout { head, headings, tiles, width: 2 * MARGIN + room, height: y - SPACE + MARGIN }
    }

    fn text(&self) -> Canvas {
        let mut canvas = Canvas::new(self.width as i32, self.height as i32);
        let mut text = |x: usize, y: usize, words: &str, style| canvas.text(words, (x as i32, y as i32), style);
        for (y, words, size) in &self.head {
            let style = match *size == TITLE_SIZE {
                true => Style::new(*size, INK, Side::Left).bold(),
                false => Style::new(*size, MUTED, Side::Left),
            };
            text(MARGIN, y + 8, words, style);
        }
        for (y, heading) in &self.headings {
            text(MARGIN, y + HEADING / 2 - 6, heading, Style::new(16.0, INK, Side::Left).bold());
        }
        for Placed { tile, left, top } in &self.tiles {
            for (i, line) in tile.lines.iter().enumerate() {
                let y = top + THUMBNAIL + SPACE / 2 + i * LINE + LINE / 2;
                match i {
                    0 => text(*left, y, &cut(line, BOLD * 12.0), Style::new(12.0, INK, Side::Left).bold()),
                    _ => text(*left, y, &cut(line, 11.0), Style::new(11.0, MUTED, Side::Left)),
                }
            }
        }
        canvas
    }
}

impl Placed<'_> {
    /// Copies the thumbnail to the middle of its square.
    fn draw(&self, sheet: &mut RgbImage) -> Result<()> {
        let square = THUMBNAIL * SCALE;
        let thumbnail = self.tile.thumbnail(square)?;
        let (width, height) = thumbnail.dimensions();
        let middle = |start: usize, length: u32| (start * SCALE + (square - length as usize) / 2) as i64;
        image::imageops::overlay(sheet, &thumbnail, middle(self.left, width), middle(self.top, height));
        Ok(())
    }
}

impl Tile {
    /// Returns the image scaled to just fit into a square. A small image repeats its pixels, so that they stay visible;
    /// a larger one is scaled smoothly.
    fn thumbnail(&self, square: usize) -> Result<RgbImage> {
        let (height, width) = (self.height, self.width);
        let needed = 3 * height * width;
        let found = self.pixels.len();
        ensure!(needed > 0 && found == needed, "contact sheet: {found} bytes for an image of 3 x {height} x {width}");
        let plane = height * width;
        let colors: Vec<u8> =
            (0..plane).flat_map(|i| [i, plane + i, 2 * plane + i]).map(|at| self.pixels[at]).collect();
        let longer = height.max(width);
        let fit = |side: usize| ((side * square / longer) as u32).max(1);
        let algorithm = match longer <= square / 2 {
            true => ResizeAlg::Nearest,
            false => ResizeAlg::Convolution(FilterType::CatmullRom),
        };
        let options = ResizeOptions::new().resize_alg(algorithm).use_alpha(false);
        let full = Pixels { pixels: &colors, size: (width as u32, height as u32) };
        let size = (fit(width), fit(height));
        let small = resize_pixels(full, size, &options)?;
        RgbImage::from_raw(size.0, size.1, small).context("contact sheet: a thumbnail lacks pixels")
    }
}

/// Returns the beginning of `line` that fits into its column, in letters of `size` pixels.
fn cut(line: &str, size: f64) -> String {
    shorten(line, size, (THUMBNAIL + GAP / 2) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(height: usize, width: usize, color: [u8; 3], lines: &[&str]) -> Tile {
        let pixels = color.into_iter().flat_map(|value| vec![value; height * width]).collect();
        Tile { pixels, height, width, lines: lines.iter().map(|line| line.to_string()).collect() }
    }

    fn sheet(sections: &[Section], columns: usize) -> Sheet {
        Sheet { sections: sections.to_vec(), columns, ..Sheet::default() }
    }

    fn drawn(sections: &[Section], columns: usize) -> RgbImage {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sheet.png");
        draw(&sheet(sections, columns), &path).unwrap();
        image::open(path).unwrap().into_rgb8()
    }

    #[test]
    fn tiles_lie_in_rows_and_keep_their_colours() {
        let red = tile(8, 8, [255, 0, 0], &["cat", "0.99"]);
        let wide = tile(300, 600, [0, 0, 255], &["dog", "0.51", "<&>\u{1}"]);
        let sections = [
            Section { heading: "most certain".into(), tiles: vec![red.clone(), red.clone(), red] },
            Section { heading: "none".into(), tiles: vec![] },
            Section { heading: "least certain".into(), tiles: vec![wide] },
        ];
        let sheet = drawn(&sections, 2);
        let row = |lines: usize| THUMBNAIL + SPACE / 2 + lines * LINE + SPACE;
        let height = 2 * MARGIN + 2 * HEADING + 2 * row(2) + row(3) - SPACE;
        assert_eq!(sheet.dimensions(), ((SCALE * (2 * MARGIN + 2 * THUMBNAIL + GAP)) as u32, (SCALE * height) as u32));
        let at = |x: usize, y: usize| sheet.get_pixel((SCALE * x) as u32, (SCALE * y) as u32).0;
        let (first, second) = (MARGIN + HEADING, MARGIN + HEADING + row(2));
        assert_eq!(at(MARGIN, first), [255, 0, 0]);
        assert_eq!(at(MARGIN + THUMBNAIL + GAP + 100, first + 127), [255, 0, 0]);
        assert_eq!(at(MARGIN + 64, second + 64), [255, 0, 0]);
        assert_eq!(at(MARGIN + THUMBNAIL + GAP + 64, second + 64), [255, 255, 255]);
        // This image is twice as wide as high, so it is a band in the middle of its square.
        let third = second + row(2) + HEADING;
        assert_eq!(at(MARGIN + 1, third + 33), [0, 0, 255]);
        assert_eq!(at(MARGIN + 1, third + 30), [255, 255, 255]);
    }

    #[test]
    fn text_is_drawn_below_its_tile() {
        let sheet = |line: &str| {
            let tiles = vec![tile(4, 4, [255; 3], &[line])];
            drawn(&[Section { heading: String::new(), tiles }], 1)
        };
        let dark = |image: &RgbImage| {
            let top = (SCALE * (MARGIN + HEADING + THUMBNAIL)) as u32;
            image.enumerate_pixels().filter(|(_, y, pixel)| *y > top && pixel.0[0] < 128).count()
        };
        assert_eq!(dark(&sheet("")), 0);
        assert!(dark(&sheet("horse")) > 100);
        // A line of any length stays within its column.
        let long = sheet(&"W".repeat(500));
        assert_eq!(long.width() as usize, SCALE * (2 * MARGIN + THUMBNAIL));
        assert_eq!(cut("abcdefghijklmnopqrstuvwxyz", 11.0), "abcdefghijklmnopqrstuv…");
        assert_eq!(cut("p 0.15  H 1.234", 11.0), "p 0.15  H 1.234");
        assert_eq!(cut(&"W".repeat(40), 11.0).chars().count(), 13);
    }

    #[test]
    fn the_sheet_says_of_which_run_it_is() {
        let tiles = [tile(4, 4, [255; 3], &["cat"])];
        let plain = sheet(&[Section { heading: "h".into(), tiles: vec![tiles[0].clone(); 3] }], 3);
        let named = Sheet { title: "low-rank-svgd-s1".into(), note: "MI in nats".into(), ..plain.clone() };
        let size = |sheet: &Sheet| image::load_from_memory(&png(sheet).unwrap()).unwrap().into_rgb8().dimensions();
        let ((width, height), (same, taller)) = (size(&plain), size(&named));
        assert_eq!((same, taller - height), (width, (SCALE * (TITLE + NOTE + GAP)) as u32));
        let long = Sheet { title: "low-rank-svgd-s1 ".repeat(4), ..named };
        assert!(size(&long).1 > taller && size(&long).0 == width, "a long title takes further lines");
    }

    #[test]
    fn small_images_repeat_their_pixels() {
        let mut two = tile(1, 2, [0; 3], &[]);
        two.pixels = vec![10, 200, 20, 210, 30, 220];
        let thumbnail = two.thumbnail(256).unwrap();
        assert_eq!(thumbnail.dimensions(), (256, 128));
        assert_eq!([thumbnail.get_pixel(127, 5).0, thumbnail.get_pixel(128, 5).0], [[10, 20, 30], [200, 210, 220]]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let failure = |sections: &[Section], columns| {
            draw(&sheet(sections, columns), &folder.path().join("sheet.png")).unwrap_err().to_string()
        };
        assert!(failure(&[], 3).contains("no image to show"));
        let section = |tiles| [Section { heading: "h".into(), tiles }];
        assert!(failure(&section(vec![]), 3).contains("no image to show"));
        assert!(failure(&section(vec![tile(2, 2, [0; 3], &[])]), 0).contains("at least one column"));
        let broken = Tile { height: 3, ..tile(2, 2, [0; 3], &[]) };
        assert!(failure(&section(vec![broken]), 3).contains("12 bytes for an image of 3 x 3 x 2"));
    }
}
