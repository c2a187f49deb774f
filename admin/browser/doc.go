// Package browser tests the operator's page of package admin in a real browser, Chromium. It holds nothing but tests, and is a module of its
// own because no other part of quotient needs a browser.
//
// Without Chromium the tests are skipped and say so, unless the environment variable QUOTIENT_REQUIRE, a list with commas, contains
// chromium: then they fail. With -screenshots=DIR they also leave pictures of the page in that directory.
package browser
