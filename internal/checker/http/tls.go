package http

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-lb/sluice/internal/config"
)

// clientConfig accepts what OpenSSL's defaults of ten years ago would have: any
// version from TLS 1.0, every cipher suite, any certificate. The suites are named,
// since the defaults lack RSA key exchange and 3DES.
func clientConfig() *tls.Config {
	c := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // as keepalived: a check, not a trust decision
		MinVersion:         tls.VersionTLS10,
		Renegotiation:      tls.RenegotiateOnceAsClient, // IIS asks for client certificates so
	}
	for _, s := range tls.CipherSuites() {
		c.CipherSuites = append(c.CipherSuites, s.ID)
	}
	for _, s := range tls.InsecureCipherSuites() {
		c.CipherSuites = append(c.CipherSuites, s.ID)
	}
	return c
}

// LoadClient reads the files of an SSL block and returns the client side that all
// SSL_GET checkers share; nil stands for a configuration without the block. Every
// file that cannot be read or parsed is an error, the CA file too, although peers
// are not verified: keepalived refuses to start then. A key without a certificate
// is read and has no use; a certificate without a key is looked for its key in
// the same file.
func LoadClient(ssl *config.SSL) (*tls.Config, error) {
	c := clientConfig()
	if ssl == nil {
		return c, nil
	}
	if ssl.CA != "" {
		data, err := os.ReadFile(ssl.CA)
		if err != nil {
			return nil, fmt.Errorf("read ca of SSL: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read ca of SSL %s: no certificate in it", ssl.CA)
		}
	}
	keyFile := ssl.Key
	if keyFile == "" {
		keyFile = ssl.Certificate
	}
	if keyFile == "" {
		return c, nil
	}
	data, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read key of SSL: %w", err)
	}
	key, err := plainKey(data, ssl.Password)
	if err != nil {
		return nil, fmt.Errorf("read key of SSL %s: %w", keyFile, err)
	}
	if ssl.Certificate == "" {
		return c, nil
	}
	chain, err := os.ReadFile(ssl.Certificate)
	if err != nil {
		return nil, fmt.Errorf("read certificate of SSL: %w", err)
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("use certificate %s with key %s of SSL: %w", ssl.Certificate, keyFile, err)
	}
	// Whatever CAs the server names: keepalived's library does not filter either.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	return c, nil
}

// plainKey returns the first private key of a PEM file, decrypted.
func plainKey(data []byte, password string) ([]byte, error) {
	for len(data) > 0 {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		switch {
		case block.Type == "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("an encrypted PKCS #8 key is not supported: convert it with `openssl pkey -traditional -aes256`, or store it without encryption")
		case block.Type != "PRIVATE KEY" && block.Type != "RSA PRIVATE KEY" && block.Type != "EC PRIVATE KEY":
			continue
		//lint:ignore SA1019 the format is weak, and it is what existing files have
		case x509.IsEncryptedPEMBlock(block):
			if password == "" {
				return nil, errors.New("it is encrypted and there is no password")
			}
			//lint:ignore SA1019 as above
			der, err := x509.DecryptPEMBlock(block, []byte(password))
			if err != nil {
				return nil, fmt.Errorf("decrypt: %w", err)
			}
			block = &pem.Block{Type: block.Type, Bytes: der}
		}
		return pem.EncodeToMemory(block), nil
	}
	return nil, errors.New("no private key in it")
}
