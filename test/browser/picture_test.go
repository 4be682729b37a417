package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
)

// smaller writes a picture with the 256 colours that it has most of: a page of text has
// few others, and takes half the bytes then.
func smaller(in []byte) ([]byte, error) {
	img, err := png.Decode(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	n := map[color.Color]int{}
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			n[img.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(n), func(a, b color.Color) int { return cmp.Compare(n[b], n[a]) })
	palette := color.Palette(colors[:min(len(colors), 256)])
	index := map[color.Color]uint8{}
	for _, c := range colors {
		index[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(b, palette)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			out.SetColorIndex(x, y, index[img.At(x, y)])
		}
	}
	var buf bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, out)
	return buf.Bytes(), err
}
