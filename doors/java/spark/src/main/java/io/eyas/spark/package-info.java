/** Lines of files of a cluster for Spark, over elastic blocks: {@code format("eyas")}. */
package io.eyas.spark;
