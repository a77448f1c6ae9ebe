package io.eyas;

/**
 * A piece of a block: whole records of a file.
 *
 * @param file path of the file
 * @param offset place of the piece in the file, bytes
 * @param content the records; the array belongs to the caller
 */
public record Piece(String file, long offset, byte[] content) {}
