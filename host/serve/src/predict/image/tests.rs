use png::{BitDepth, ColorType};
use saggar_tensor::{Descriptor, Shape};

use super::*;

fn port(shape: &[usize]) -> Port {
    let item = Descriptor::new(DType::U8, Shape::new(shape).unwrap());
    Port {
        name: "image".to_owned(),
        item,
        semantics: Some("image".to_owned()),
        classes: Vec::new(),
        default: None,
        preprocessing: None,
    }
}

fn png(width: u32, height: u32, color: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == ColorType::Indexed {
        encoder.set_palette(vec![0, 0, 0, 255, 0, 0]);
    }
    encoder.write_header().unwrap().write_image_data(data).unwrap();
    bytes
}

/// Decodes an image into an item.
fn decode_item(port: &Port, bytes: &[u8]) -> Vec<u8> {
    decode_image(port, bytes).expect("the picture is whole").bytes
}

/// An image's colour type and samples, and the expected grey and RGB values.
type ColourConversionCase = (ColorType, BitDepth, &'static [u8], &'static [u8], &'static [u8]);

#[test]
fn colours_are_converted_to_the_channels_of_the_port() {
    let eight = BitDepth::Eight;
    let cases: [ColourConversionCase; 6] = [
        (ColorType::Grayscale, eight, &[7, 200], &[7, 200], &[7, 7, 7, 200, 200, 200]),
        (ColorType::GrayscaleAlpha, eight, &[255, 0, 200, 255], &[0, 200], &[0, 0, 0, 200, 200, 200]),
        (ColorType::Rgb, eight, &[255, 0, 0, 0, 0, 255], &[76, 29], &[255, 0, 0, 0, 0, 255]),
        (ColorType::Rgba, eight, &[255, 0, 0, 255, 9, 9, 9, 0], &[76, 0], &[255, 0, 0, 0, 0, 0]),
        (ColorType::Grayscale, BitDepth::Sixteen, &[255, 255, 128, 0], &[255, 128], &[255, 255, 255, 128, 128, 128]),
        (ColorType::Indexed, BitDepth::One, &[0b0100_0000], &[0, 76], &[0, 0, 0, 255, 0, 0]),
    ];
    for (color, depth, data, grey, rgb) in cases {
        let png = png(2, 1, color, depth, data);
        assert_eq!(decode_item(&port(&[1, 2]), &png), grey, "{color:?}");
        assert_eq!(decode_item(&port(&[1, 2, 1]), &png), grey, "{color:?}");
        assert_eq!(decode_item(&port(&[1, 2, 3]), &png), rgb, "{color:?}");
    }
}

#[test]
fn images_of_another_size_are_resized() {
    let picture = png(4, 2, ColorType::Grayscale, BitDepth::Eight, &[0, 100, 20, 40, 100, 200, 20, 40]);
    assert_eq!(decode_item(&port(&[1, 2]), &picture), [100, 30]);
    assert_eq!(decode_item(&port(&[1, 1]), &picture), [65]);
    let picture = png(2, 1, ColorType::Grayscale, BitDepth::Eight, &[0, 100]);
    assert_eq!(decode_item(&port(&[2, 4]), &picture), [0, 25, 75, 100, 0, 25, 75, 100]);
    let flat = png(17, 31, ColorType::Grayscale, BitDepth::Eight, &[93; 17 * 31]);
    for (height, width) in [(28, 28), (1, 1), (31, 17), (5, 90)] {
        assert!(decode_item(&port(&[height, width]), &flat).iter().all(|&value| value == 93));
    }
}

#[test]
fn invalid_images_are_refused_with_the_reason() {
    let good = png(28, 28, ColorType::Grayscale, BitDepth::Eight, &[1; 784]);
    let refused = |bytes: &[u8]| decode_image(&port(&[28, 28]), bytes).unwrap_err().to_string();
    assert_eq!(refused(b""), "image: expected a PNG, a JPEG or a WebP, got nothing");
    assert_eq!(refused(b"GIF89a"), "image: expected a PNG, a JPEG or a WebP, got a GIF; convert it to PNG");
    assert_eq!(refused(b"\xff\xd8\xff\xe0"), "image: the JPEG cannot be read: it ends early");
    for cut in 8..good.len() - 12 {
        assert!(refused(&good[..cut]).starts_with("image: the PNG cannot be read: "), "{cut}");
    }
    // Any corrupted byte results in an error or an image, never in a panic.
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        if let Ok(item) = decode_image(&port(&[28, 28]), &bad) {
            assert_eq!(item.bytes.len(), 784);
        }
    }
    let mut floats = port(&[28, 28]);
    floats.item.dtype = DType::F32;
    let error = decode_image(&floats, &good).unwrap_err().to_string();
    assert_eq!(error, "image: takes float32[28, 28], not a picture");
}

#[test]
fn strong_shrinking_or_stretching_gives_a_warning() {
    let warning = |width: u32, height: u32, to: &[usize]| {
        let samples = vec![9; (width * height) as usize];
        decode_image(&port(to), &png(width, height, ColorType::Grayscale, BitDepth::Eight, &samples)).unwrap().warning
    };
    for (width, height) in [(28, 28), (8, 8), (100, 112), (14, 20)] {
        assert_eq!(warning(width, height, &[28, 28]), None, "{width} x {height}");
    }
    assert_eq!(
        warning(160, 90, &[8, 8]).unwrap(),
        "image: the picture of 160 x 90 pixels was resized to the model's 8 x 8: most of its detail is lost and its \
         proportions are changed"
    );
    assert!(warning(90, 90, &[8, 8, 3]).unwrap().ends_with("most of its detail is lost"));
    assert!(warning(30, 10, &[28, 28]).unwrap().ends_with("its proportions are changed"));
}

/// A header that declares terabytes, and a small file that really contains many pixels.
#[test]
fn image_decompression_bombs_are_refused() {
    let mut promise = png(1, 1, ColorType::Rgba, BitDepth::Eight, &[0; 4]);
    promise[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    let crc = crc32(&promise[12..29]);
    promise[29..33].copy_from_slice(&crc.to_be_bytes());
    assert!(decode_image(&port(&[28, 28]), &promise).is_err());

    let side = 5000;
    let bomb =
        png(side, side, ColorType::Grayscale, BitDepth::One, &vec![0; (side as usize).div_ceil(8) * side as usize]);
    assert!(bomb.len() < 20_000, "{}", bomb.len());
    let error = decode_image(&port(&[28, 28]), &bomb).unwrap_err();
    assert_eq!(error, ImageError::TooLarge { name: "image".to_owned(), width: side as usize, height: side as usize });
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
