"""What an image folder can hold: every case is read as a viewer shows it, or ends in one line that names the file."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from fssl_core.data import folders
from fssl_core.data.datasets import inventory, load_dataset
from fssl_core.data.folders import read_image
from fssl_core.errors import DataError
from tests.data.child import outcomes
from tests.data.test_datasets import write_images

RAMP = np.arange(64 * 64, dtype=np.float64).reshape(64, 64) / (64 * 64 - 1)  # from 0 to 1
PHOTO = (255 * np.stack([RAMP, RAMP.T, 1 - RAMP], -1)).astype(np.uint8)


def saved(image: Image.Image, path, **options):
    image.save(path, **options)
    return path


def png(path, kind: int, depth: int, samples: np.ndarray, *chunks: tuple[bytes, bytes]):
    """A PNG written by hand: samples ``[64, 64, channels]`` of 8 or 16 bits."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + row.astype(f">u{depth // 8}").tobytes() for row in samples)
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    content = b"".join([chunk(b"IHDR", head), *(chunk(*each) for each in chunks), chunk(b"IDAT", zlib.compress(rows))])
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content + chunk(b"IEND", b""))
    return path


def read(path) -> np.ndarray:
    return read_image(path, 64).permute(1, 2, 0).numpy().astype(int)  # [64, 64, 3]


def near(path, expected: np.ndarray, difference: int = 1) -> None:
    expected = np.broadcast_to(expected if expected.ndim == 3 else expected[..., None], (64, 64, 3))
    assert np.abs(read(path) - expected).max() <= difference


# ---------------------------------------------------------------- kinds of pixels


def test_sixteen_bits_of_grey_are_scaled(tmp_path):
    """They were cut off at 255: a mean of 254 where the image has 127."""
    deep = (65535 * RAMP).round().astype(np.uint16)
    path = saved(Image.fromarray(deep), tmp_path / "a.png")
    near(path, 255 * RAMP)
    assert read(path).mean() == pytest.approx(127.5, abs=0.5)
    dark = saved(Image.fromarray(deep // 256), tmp_path / "b.png")  # what a camera of 8 bits wrote as it was
    assert read(dark).max() == 1
    ends = png(tmp_path / "c.png", 0, 16, np.where(RAMP > 0.5, 65535, 0)[..., None])
    assert np.unique(read(ends)).tolist() == [0, 255]


@pytest.mark.parametrize(("kind", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_sixteen_bits_of_every_kind_are_scaled(tmp_path, kind, channels):
    values = np.repeat(RAMP[..., None], channels, -1)
    if kind >= 4:
        values[..., -1] = 1  # opaque
    near(png(tmp_path / "a.png", kind, 16, (65535 * values).round()), 255 * RAMP)


def test_a_mode_of_whole_numbers_is_scaled_as_older_versions_of_pillow_give_it():
    image = Image.fromarray((65535 * RAMP).round().astype(np.int32))
    assert image.mode == "I"
    assert np.abs(np.asarray(folders._upright(image)).astype(float) - 255 * RAMP[..., None]).max() <= 1


def test_floats_have_no_white_and_are_refused():
    with pytest.raises(ValueError, match="its pixels are F"):
        folders._upright(Image.fromarray(RAMP.astype(np.float32)))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "LA", "RGBA"])
def test_png_of_every_mode_without_transparency(tmp_path, mode):
    image = Image.fromarray(PHOTO).convert(mode)
    near(saved(image, tmp_path / "a.png"), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_of_every_mode(tmp_path, mode):
    image = Image.fromarray(PHOTO).convert(mode)
    near(saved(image, tmp_path / "a.jpg", quality=100), np.asarray(image.convert("RGB")), difference=16)


HALF = (255 * (np.arange(64) >= 32)).astype(np.uint8)  # opaque on the right


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparent_places_are_white_whatever_colour_lies_below(tmp_path, mode):
    image = Image.fromarray(PHOTO).convert(mode[:-1])
    expected = np.asarray(image.convert("RGB")).copy()
    expected[:, :32] = 255
    image.putalpha(Image.fromarray(np.broadcast_to(HALF, (64, 64)).copy()))
    assert image.mode == mode
    near(saved(image, tmp_path / "a.png"), expected)


def test_half_transparent_places_are_half_white(tmp_path):
    image = Image.new("RGBA", (64, 64), (0, 0, 255, 128))
    near(saved(image, tmp_path / "a.png"), np.broadcast_to([127, 127, 255], (64, 64, 3)))


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_a_colour_that_stands_for_transparency_is_white(tmp_path, mode):
    colours = {"P": [7, 100], "L": [7, 100], "RGB": [(7, 8, 9), (100, 0, 0)]}[mode]
    image = Image.new(mode, (64, 64), colours[1])
    if mode == "P":
        image.putpalette([value for value in range(256) for _ in range(3)])
    image.paste(colours[0], (0, 0, 32, 64))
    path = saved(image, tmp_path / "a.png", transparency=colours[0])
    assert (read(path)[:, :32] == 255).all()
    near(path, np.where(np.arange(64)[None, :, None] < 32, 255, colours[1]))


def test_a_palette_with_transparency_in_bytes(tmp_path):
    image = Image.new("P", (64, 64), 1)
    image.putpalette([0, 0, 0, 200, 0, 0])
    image.paste(0, (0, 0, 32, 64))
    near(
        saved(image, tmp_path / "a.png", transparency=bytes([0, 255])),
        np.where(np.arange(64)[None, :, None] < 32, 255, [200, 0, 0]),
    )


# ---------------------------------------------------------------- turned, moving, mislabelled


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_an_image_is_turned_as_its_exif_data_say(tmp_path, orientation, suffix):
    image = Image.fromarray(PHOTO)
    exif = image.getexif()
    exif[0x0112] = orientation
    path = saved(image, tmp_path / f"a.{suffix}", exif=exif, **({"quality": 100} if suffix == "jpg" else {}))
    with Image.open(path) as file:
        near(path, np.asarray(ImageOps.exif_transpose(file)))
    assert (np.abs(read(path) - PHOTO).max() < 20) == (orientation in (0, 1, 9))


def test_a_turned_image_has_its_sides_exchanged_before_it_is_cut(tmp_path):
    wide = np.zeros((64, 128, 3), np.uint8)
    wide[:, 32:96] = PHOTO
    image = Image.fromarray(wide)
    exif = image.getexif()
    exif[0x0112] = 6
    near(saved(image, tmp_path / "a.png", exif=exif), PHOTO[::-1].transpose(1, 0, 2))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's, of what it reads besides
@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0" + b"\xff" * 40])
def test_damaged_exif_data_leave_the_image_as_it_is(tmp_path, exif):
    near(saved(Image.fromarray(PHOTO), tmp_path / "a.jpg", exif=exif, quality=100), PHOTO, difference=16)


def test_of_an_animation_the_first_picture_is_taken(tmp_path):
    later = Image.new("RGB", (64, 64), "red")
    path = saved(Image.fromarray(PHOTO), tmp_path / "a.png", save_all=True, append_images=[later])
    with Image.open(path) as file:
        assert file.n_frames == 2
    near(path, PHOTO)


def test_of_a_camera_s_several_pictures_the_first_is_taken(tmp_path):
    later = Image.new("RGB", (64, 64), "red")
    path = tmp_path / "a.jpg"
    Image.fromarray(PHOTO).save(path, format="MPO", save_all=True, append_images=[later], quality=100)
    near(path, PHOTO, difference=16)


def test_a_png_named_jpg_is_read(tmp_path):
    near(saved(Image.fromarray(PHOTO), tmp_path / "a.jpg", format="PNG"), PHOTO)


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP", "PPM", "PDF", "EPS"])
def test_other_formats_under_these_names_are_refused(tmp_path, kind, monkeypatch):
    """EPS is a program: reading its pixels starts Ghostscript."""
    monkeypatch.setattr(os, "posix_spawn", None)
    monkeypatch.setattr("subprocess.Popen", None)  # nothing is started
    path = tmp_path / "a.png"
    Image.fromarray(PHOTO).save(path, format=kind)
    with pytest.raises(DataError, match=r"a\.png is damaged or cut short \(by its content it is none of JPEG, PNG\)"):
        read_image(path, 64)


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (1, 60), (64, 64), (65, 64)])
def test_small_and_narrow_images_are_enlarged_and_cut(tmp_path, size):
    near(saved(Image.new("RGB", size, (10, 20, 30)), tmp_path / "a.png"), np.broadcast_to([10, 20, 30], (64, 64, 3)))


def header(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and holds a row of nothing."""
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # Pillow's own limit, above ours
@pytest.mark.parametrize(
    ("width", "height"), [(8193, 8192), (10_000, 10_000), (100_000, 100_000), (2**31 - 1, 2**31 - 1), (1, 2**25)]
)
def test_more_pixels_than_are_read_are_refused_by_the_header(tmp_path, width, height):
    path = tmp_path / "a.png"
    path.write_bytes(header(width, height))
    with pytest.raises(DataError, match=r"a\.png is damaged or cut short \(.*(67,108,864|bomb)") as error:
        read_image(path, 64)
    assert "\n" not in str(error.value)


def bomb(path, side: int) -> None:
    """A white square of few bytes."""
    Image.new("1", (side, side), 1).save(path, optimize=True)


# ---------------------------------------------------------------- whole folders, in processes with limits


def pets(root, name: str):
    write_images(root / name)
    return root / name


def test_folders_that_used_to_hang_or_fill_the_memory(tmp_path):
    first = "train/cat/0.png"
    cases = {}
    for name in ("pipe", "device", "endless", "folder", "bomb", "large", "loop", "broken link", "empty", "text"):
        cases[name] = pets(tmp_path, name) / first
        cases[name].unlink()
    os.mkfifo(cases["pipe"])
    cases["device"].symlink_to("/dev/zero")
    cases["endless"].symlink_to(cases["endless"].name)
    cases["folder"].mkdir()
    bomb(cases["bomb"], 13_000)  # 169 million pixels, below what Pillow itself refuses
    bomb(cases["large"], 8_192)
    (cases["loop"].parent / "again").symlink_to("..", target_is_directory=True)
    cases["broken link"].symlink_to("nowhere.png")
    cases["empty"].touch()
    cases["text"].write_text("<html>404</html>")
    results = dict(zip(cases, outcomes([(tmp_path, name) for name in cases]), strict=True))
    ends = {name: result["end"] for name, result in results.items()}
    assert ends == dict.fromkeys(cases, "DataError") | {"large": "read", "folder": "read"}
    assert results["folder"]["images"] == 3  # a folder named like an image is a folder
    reasons = {
        "pipe": "not a regular file",
        "device": "not a regular file",
        "bomb": "13000 x 13000 pixels; at most 67,108,864 are read",
        "loop": "is a link to a folder whose images are there already",
        "broken link": "0.png is missing",
        "empty": "none of JPEG, PNG",
        "text": "none of JPEG, PNG",
    }
    for name, reason in reasons.items():
        assert reason in results[name]["message"]
    assert all(result["message"].isprintable() for result in results.values())
    assert max(result["megabytes"] for name, result in results.items() if name != "large") < 100
    assert results["large"]["megabytes"] < 900


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_truncated_image_is_named(tmp_path, keep, suffix):
    path = tmp_path / f"a{suffix}"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(DataError, match=rf"a\{suffix} is damaged or cut short"):
        read_image(path, 64)


def test_images_damaged_at_random_are_read_or_named(tmp_path):
    draws = np.random.default_rng(0)
    for suffix in (".png", ".jpg"):
        path = tmp_path / f"a{suffix}"
        Image.fromarray(PHOTO).save(path)
        content = path.read_bytes()
        for _ in range(100):
            wrong = bytearray(content)
            for place in draws.integers(0, len(wrong), 4):
                wrong[place] ^= 1 << int(draws.integers(8))
            path.write_bytes(wrong)
            try:
                image, message = read_image(path, 16), ""
            except DataError as error:
                image, message = torch.empty(3, 16, 16), str(error)
            assert image.shape == (3, 16, 16)
            assert not message or (str(path) in message and message.isprintable())


# ---------------------------------------------------------------- names and places


def test_what_is_hidden_is_not_looked_at(root):
    """Notebooks' checkpoints, a Macintosh's notes on each file."""
    folder = pets(root, "pets")
    for place in (folder / "train/.ipynb_checkpoints", folder / "train/cat/.thumbnails"):
        place.mkdir()
        (place / "a.png").write_bytes(b"no image")
    (folder / "train/cat/._0.png").write_bytes(b"no image")
    data = load_dataset("pets")
    assert (data.classes, len(data.train)) == (("cat", "dog"), 4)


def test_links_to_images_and_folders_are_followed(root, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_images(elsewhere)
    (root / "pets/train/cat").mkdir(parents=True)
    (root / "pets/train/cat/0.png").symlink_to(elsewhere / "train/cat/0.png")
    (root / "pets/train/cat/more").symlink_to(elsewhere / "test/cat", target_is_directory=True)
    (root / "pets/train/dog").symlink_to(elsewhere / "train/dog", target_is_directory=True)
    (root / "pets/test").symlink_to(elsewhere / "test", target_is_directory=True)
    data = load_dataset("pets")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1]


def test_names_in_any_script_and_an_accent_written_in_two_ways(root):
    write_images(root / "pets", splits=("train",), classes=("caf\u00e9", "猫"))
    write_images(root / "pets", splits=("test",), classes=("cafe\u0301", "猫"))
    (root / "pets/train/猫/0.png").rename(root / "pets/train/猫/Ünïcode 🐱.PNG")
    data = load_dataset("pets")
    assert data.classes == ("caf\u00e9", "猫")
    assert data.train.labels.tolist() == data.test.labels.tolist() == [0, 0, 1, 1]


def test_a_file_s_name_that_is_no_text_is_read(root, monkeypatch):
    monkeypatch.setattr(folders, "KEPT_FROM", 1)
    folder = pets(root, "pets")
    (folder / "train/cat/0.png").rename(os.fsdecode(os.fsencode(folder / "train/cat/") + b"/\xff\xfe.png"))
    assert len(load_dataset("pets").train) == 4


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\x1b[2J", b"two\nlines"])
def test_a_class_whose_name_cannot_be_printed_is_refused(root, name):
    folder = pets(root, "pets")
    (folder / "train/cat").rename(os.fsdecode(os.fsencode(folder / "train") + b"/" + name))
    with pytest.raises(DataError, match="its name cannot be printed: rename it") as error:
        load_dataset("pets")
    assert str(error.value).isprintable()


def test_two_folders_with_one_name_are_refused(root):
    write_images(root / "pets", classes=("caf\u00e9", "cafe\u0301"))
    with pytest.raises(DataError, match="has a class 'café' twice"):
        load_dataset("pets")


def test_a_class_with_the_name_of_an_image_is_no_loose_one(root, capsys):
    write_images(root / "pets", classes=("cat.jpg", "dog"))
    assert load_dataset("pets").classes == ("cat.jpg", "dog")
    assert "left out" not in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".webp", ".GIF", ".tif"])
def test_images_of_other_formats_are_counted_aloud(root, suffix, capsys):
    folder = pets(root, "pets")
    (folder / f"train/cat/a{suffix}").touch()
    (folder / "train/cat/notes.txt").touch()
    (folder / "train/loose.jpg").touch()
    assert len(load_dataset("pets").train) == 4
    said = capsys.readouterr().err
    assert f"images in {folder / 'train'} itself, of no class, are left out: 1." in said
    assert f"of other formats in {folder / 'train/cat'} are left out: 1; only .jpg" in said


@pytest.mark.parametrize("empty", ["train/eel", "test/eel", "train/cat", "train"])
def test_empty_folders_are_named(root, empty):
    folder = pets(root, "pets")
    for path in sorted((folder / empty).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (folder / empty).mkdir(exist_ok=True)
    with pytest.raises(DataError, match=r"has no \.jpg, \.jpeg, \.png images in (eel|cat|<class>)/"):
        load_dataset("pets")
    assert inventory().set_index("name").loc["pets"].problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("place", ["train/cat/0.png", "train/cat", "train", ""])
def test_what_may_not_be_read_is_named(root, place):
    path = pets(root, "pets") / place
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with pytest.raises(DataError, match=f"{path.name} may not be read by this user"):
            load_dataset("pets")
    finally:
        path.chmod(mode)


@pytest.mark.parametrize("opened", ["fssl_core.data.folders.open_file", "os.scandir"])
def test_what_may_not_be_read_is_named_for_root_too(root, opened, monkeypatch):
    folder = pets(root, "pets")

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(opened, refuse)
    with pytest.raises(DataError, match=f"{folder}.* may not be read by this user: change its permissions"):
        load_dataset("pets")


def test_the_order_of_threads_changes_nothing(root):
    folder = pets(root, "many")
    for number in range(200):
        Image.fromarray(np.full((40, 40), number, np.uint8)).save(folder / f"train/cat/{number:03d}.jpg")
    paths = sorted((folder / "train/cat").glob("*.jpg"))
    images = folders._decode_all(paths, 8)
    assert torch.equal(images, torch.stack([read_image(path, 8) for path in paths]))
